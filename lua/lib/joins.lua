-- joins: how many places an address, and the network around it, may take in a time.
--
-- An address has a window: it opens with a place, lasts p.joins_per and holds p.joins places; the next place after it opens
-- another. Windows do not overlap, so no time of that length sees more than two windows' worth, and none more than one after
-- a quiet time. A network has windows of its own (p.wide, p.wide_per). A place counts at its order, the time of its join,
-- not when the line first hears of it. JOINS holds a window as a score, whose parts share 52 bits:
--
--   its beginning in tenths of a second · 2^18 + places · 2 + 1 where an earlier one was full

local TENTH, PARTS = 100000, 262144

local function read_window(who, most, per, ord)
  local z = tonumber(redis.call('ZSCORE', JOINS, who) or 0)
  local w = { who = who, most = most, per = per, from = math.floor(z / PARTS) * TENTH, n = math.floor(z % PARTS / 2), was_full = z % 2 }
  -- The beginning was rounded down.
  w.till = w.from + per + TENTH
  if z == 0 or ord >= w.till then
    if w.n >= most then w.was_full = 1 end
    w.from, w.till, w.n = ord, ord + per + TENTH, 0
  end
  return w
end

-- judge gives the order at which a place fits into a window, or nil and the time (µs) until one does. Whoever kept the tokens
-- of joins that a full window had no place for gets the order of a later one: old orders are not to be saved up.
local function judge(s, w, ord)
  if w.n >= w.most then
    if s.time < w.till then return nil, w.till - s.time end
    w.from, w.till, w.n, w.was_full = w.till, w.till + w.per + TENTH, 0, 1
  end
  if w.was_full == 1 then return math.max(ord, w.from) end
  return ord
end

-- places gives a function that counts one place of an address hash, and its order; or nil, the time until there is one, and
-- which of the two is full; where both are, the one that is full for longer, as gateways keep its joins off until then.
local function places(s, p, hash, ord)
  if p.joins <= 0 or #hash ~= 18 then return function() end, ord end
  local address = read_window(string.sub(hash, 1, 9), p.joins, p.joins_per, ord)
  local network = read_window(string.sub(hash, 10), p.wide > 0 and p.wide or math.huge, p.wide_per, ord)
  local one, wait = judge(s, address, ord)
  local other, longer = judge(s, network, ord)
  if not one or not other then
    wait, longer = wait or 0, longer or 0
    return nil, math.max(wait, longer), wait > longer and 'address' or 'network'
  end
  return function()
    for _, w in ipairs({ address, network }) do
      local n = math.min(w.n + 1, PARTS / 2 - 1)
      redis.call('ZADD', JOINS, str(math.floor(w.from / TENTH) * PARTS + 2 * n + w.was_full), w.who)
    end
  end, math.max(one, other)
end

-- forget_joins drops windows that no token can still fall into, at most n, and returns how many it dropped.
local function forget_joins(s, p, n)
  local before = math.floor((s.time - math.max(p.joins_per, p.wide_per) - p.absence) / TENTH) - 1
  local old = redis.call('ZRANGEBYSCORE', JOINS, '-inf', str(before * PARTS), 'LIMIT', 0, n)
  if #old > 0 then redis.call('ZREM', JOINS, unpack(old)) end
  return #old
end
