-- sketch: where orders fall in the line behind its front, counted anew a part a tick.
--
-- A knot is an order and its rank: how many in line have a smaller one. Between two
-- knots lies at most 0.5 % of the rank, so what is read off between them is as
-- good. A knot stays at its order: while nobody joins, ranks only fall, and what
-- is read off never moves backwards.
--
-- Knots lie in chunks {gone, came, order, rank, order, rank, ...}: gone and came
-- are those of the state when the ranks were counted. Whoever reads them takes off
-- the heads that left since.

local CHUNK = 64     -- knots in a new chunk; twice as many are split
local CALLS = 256    -- commands that one tick spends on knots; each takes some 4 µs at a million waiting
local MANY = 100       -- chunks from which on knots are thinned out
local RECENT = 10000000 -- orders so young may still be joining: a first poll comes seconds after them

local function allowed(rank) return math.max(1, math.floor(rank / 400)) end

-- sketch renews chunks, a list of packed ones with the last order of each in ends.
-- exact is how many the front has, whose places are known exactly, edge its last order; joined and left say
-- whether somebody did since the last time. It returns both lists.
-- s.rough is for how many ticks yet they may be coarser than promised.
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
    return redis.call('ZCOUNT', LINE, '-inf', '(' .. str(order))
  end
  local function order_at(rank)
    calls = calls - 1
    return tonumber(redis.call('ZRANGE', LINE, rank, rank, 'WITHSCORES')[2])
  end

  -- thin drops knots that stand closer than need be, as they do when half of a line
  -- has left. It may move somebody back a little, so it waits until there are many.
  local function thin(knots)
    if #chunks < MANY then return end
    local k = 5
    while knots[k + 3] do
      local o0, r0, o1, r1, o2, r2 = knots[k - 2], knots[k - 1], knots[k], knots[k + 1], knots[k + 2], knots[k + 3]
      if 2 * (r2 - r0) < allowed(r0) and r0 + (r2 - r0) * (o1 - o0) / (o2 - o0) <= r1 then
        table.remove(knots, k)
        table.remove(knots, k)
      else
        k = k + 2
      end
    end
  end

  local function put(i, knots)
    local n = #knots
    if n - 2 > 4 * CHUNK then
      local first = { unpack(knots, 1, 2 + 2 * CHUNK) }
      table.insert(chunks, i, cmsgpack.pack(first))
      table.insert(ends, i, first[#first - 1])
      i = i + 1
      knots = { knots[1], knots[2], unpack(knots, 3 + 2 * CHUNK, n) }
    end
    chunks[i], ends[i] = cmsgpack.pack(knots), knots[#knots - 1]
  end

  -- renew counts the knots of one chunk, and sets new ones where too many lie between two.
  local function renew(i)
    local order, rank = edge, exact - 1
    if i > 1 then
      order = ends[i - 1]
      rank = count(order)
    end
    local old, knots = cmsgpack.unpack(chunks[i]), { s.gone, s.came }
    local function add(o, r)
      local n = #knots
      knots[n + 1], knots[n + 2] = o, r
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
    thin(knots)
    if #knots > 2 then
      put(i, knots)
    else
      table.remove(chunks, i)
      table.remove(ends, i)
    end
  end

  -- From the tail on, so that a chunk that is split or dropped moves none that is still to come.
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

  -- What has grown behind the last knot.
  local order, rank = edge, exact - 1
  if #ends > 0 then
    order = ends[#ends]
    rank = count(order)
  end
  local knots
  while calls > 0 and length - 1 - rank > allowed(rank) do
    local at = rank + allowed(rank)
    local o = order_at(at)
    if o > order then
      if not knots then
        knots = #chunks > 0 and cmsgpack.unpack(chunks[#chunks])
        if not knots or #knots - 2 >= 2 * CHUNK then
          knots = { s.gone, s.came }
          chunks[#chunks + 1] = ''
        end
      end
      local n = #knots
      knots[n + 1], knots[n + 2] = o, at + s.gone - knots[1]
      order = o
    end
    rank = at
  end
  if knots then put(#chunks, knots) end
  -- Where it ran out of calls there may be wide gaps until every chunk has had its turn.
  s.rough = calls <= 0 and #chunks + 8 or math.max(0, s.rough - 1)
  return chunks, ends
end
