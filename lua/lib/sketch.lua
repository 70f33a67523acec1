-- sketch: samples of the ranks of orders behind the front of the queue, counted anew one part a tick.
--
-- A sample is an order and its rank: the number of tickets in the queue with a smaller one. Between two samples lies at most 0.5 % of the
-- rank, so a rank that is interpolated between them is as accurate. A sample stays at its order: while nobody joins, ranks only
-- fall, and an interpolated rank never rises.
--
-- Samples lie in chunks {gone, came, order, rank, order, rank, ...}: gone and came are those of the state when the ranks were counted. A
-- reader subtracts the tickets that left at the front since.

local CHUNK = 64     -- samples in a new chunk; twice as many are split
local CALLS = 256    -- commands that one tick spends on samples; each takes some 4 µs at a million waiting
local MANY = 100       -- chunks from which on samples are thinned out
local RECENT = 10000000 -- tickets with such young orders may still be joining: a first poll comes seconds after the order

local function allowed(rank) return math.max(1, math.floor(rank / 400)) end

-- sketch renews chunks, a list of packed ones with the last order of each in ends, and returns both lists. exact is the size of the front,
-- within which places are known exactly, edge its last order; joined and left report whether tickets joined or left since the last call. s.rough is the
-- number of ticks for which the samples may still be coarser than promised.
local function sketch(s, chunks, ends, exact, edge, length, joined, left)
  while ends[1] and (ends[1] <= edge or length <= exact) do
    table.remove(chunks, 1)
    table.remove(ends, 1)
    s.turn = s.turn - 1
  end
  if length <= exact then return chunks, ends end
  local calls = CALLS

  local function count(order)
    calls = calls - 1
    return redis.call('ZCOUNT', QUEUE, '-inf', '(' .. str(order))
  end
  local function order_at(rank)
    calls = calls - 1
    return tonumber(redis.call('ZRANGE', QUEUE, rank, rank, 'WITHSCORES')[2])
  end

  -- thin drops samples that are closer than necessary, as when half of the queue has left. It may move a visitor back a little, so it waits
  -- until there are many.
  local function thin(samples)
    if #chunks < MANY then return end
    local k = 5
    while samples[k + 3] do
      local o0, r0, o1, r1, o2, r2 = samples[k - 2], samples[k - 1], samples[k], samples[k + 1], samples[k + 2], samples[k + 3]
      if 2 * (r2 - r0) < allowed(r0) and r0 + (r2 - r0) * (o1 - o0) / (o2 - o0) <= r1 then
        table.remove(samples, k)
        table.remove(samples, k)
      else
        k = k + 2
      end
    end
  end

  local function put(i, samples)
    local n = #samples
    if n - 2 > 4 * CHUNK then
      local first = { unpack(samples, 1, 2 + 2 * CHUNK) }
      table.insert(chunks, i, cmsgpack.pack(first))
      table.insert(ends, i, first[#first - 1])
      i = i + 1
      samples = { samples[1], samples[2], unpack(samples, 3 + 2 * CHUNK, n) }
    end
    chunks[i], ends[i] = cmsgpack.pack(samples), samples[#samples - 1]
  end

  -- renew counts the samples of one chunk again, and adds new ones where too many tickets lie between two.
  local function renew(i)
    local order, rank = edge, exact - 1
    if i > 1 then
      order = ends[i - 1]
      rank = count(order)
    end
    local old, samples = cmsgpack.unpack(chunks[i]), { s.gone, s.came }
    local function add(o, r)
      local n = #samples
      samples[n + 1], samples[n + 2] = o, r
      order, rank = o, r
    end
    for k = 3, #old, 2 do
      local o = old[k]
      if o > order then
        local r = count(o)
        local from, gap = rank, r - rank
        local parts = math.ceil(gap / allowed(rank))
        for j = 1, parts - 1 do
          if calls <= 0 then break end
          local at = from + math.floor(j * gap / parts)
          local mid = order_at(at)
          if mid > order and mid < o then add(mid, at) end
        end
        add(o, r)
      end
    end
    thin(samples)
    if #samples > 2 then
      put(i, samples)
    else
      table.remove(chunks, i)
      table.remove(ends, i)
    end
  end

  -- From the tail on, so that a chunk that is split or dropped moves none of those to come.
  local i = #chunks
  if joined then
    while i >= 1 and calls > CALLS / 4 and ends[i] > s.now - RECENT do
      renew(i)
      i = i - 1
    end
  end
  if s.turn > i or s.turn < 1 then s.turn = i end
  for _ = 1, (joined or left) and 2 or 1 do
    if s.turn >= 1 and calls > 0 then
      renew(s.turn)
      s.turn = s.turn - 1
    end
  end

  -- Tickets behind the last sample.
  local order, rank = edge, exact - 1
  if #ends > 0 then
    order = ends[#ends]
    rank = count(order)
  end
  local samples
  while calls > 0 and length - 1 - rank > allowed(rank) do
    local at = rank + allowed(rank)
    local o = order_at(at)
    if o > order then
      if not samples then
        samples = #chunks > 0 and cmsgpack.unpack(chunks[#chunks])
        if not samples or #samples - 2 >= 2 * CHUNK then
          samples = { s.gone, s.came }
          chunks[#chunks + 1] = ''
        end
      end
      local n = #samples
      samples[n + 1], samples[n + 2] = o, at + s.gone - samples[1]
      order = o
    end
    rank = at
  end
  if samples then put(#chunks, samples) end
  -- Where calls ran out there may be wide gaps until every chunk has had its turn.
  s.rough = calls <= 0 and #chunks + 8 or math.max(0, s.rough - 1)
  return chunks, ends
end
