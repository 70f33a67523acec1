-- joins: limits the places that one address, and the network around it, may take in a period.
--
-- An address has a window: it opens with a place, lasts p.joins_per and holds p.joins places; the next place after it opens another.
-- Windows do not overlap, so no time of that length sees more than two windows' worth of places, and none more than one after a quiet
-- time. A network has windows of its own (p.wide, p.wide_per). A place counts at its order, the time of its join, even if the store learns
-- of it later. JOINS holds a window as a score, whose parts share 52 bits:
--
--   its beginning in tenths of a second · 2^18 + places · 2 + 1 where an earlier one was full

local TENTH, PARTS = 100000, 262144

local function read_window(who, most, per, order)
  local score = tonumber(redis.call('ZSCORE', JOINS, who) or 0)
  local w = { who = who, most = most, per = per, from = math.floor(score / PARTS) * TENTH, n = math.floor(score % PARTS / 2), was_full = score % 2 }
  w.till = w.from + per + TENTH -- from was rounded down
  if score == 0 or order >= w.till then
    if w.n >= most then w.was_full = 1 end
    w.from, w.till, w.n = order, order + per + TENTH, 0
  end
  return w
end

-- order_in_window returns the order at which a place fits into a window, or nil and the time (µs) until one does. A token
-- whose join found the window full gets the order of a later join, so that old orders cannot be saved up.
local function order_in_window(s, w, order)
  if w.n >= w.most then
    if s.time < w.till then return nil, w.till - s.time end
    w.from, w.till, w.n, w.was_full = w.till, w.till + w.per + TENTH, 0, 1
  end
  if w.was_full == 1 then return math.max(order, w.from) end
  return order
end

-- join_place returns a function that counts one place of an address, and the order of the place. Where a window is full it returns nil, the
-- time until there is room, and 'address' or 'network', whichever is full for longer.
local function join_place(s, p, hash, order)
  if p.joins <= 0 or #hash ~= 18 then return function() end, order end
  local address = read_window(string.sub(hash, 1, 9), p.joins, p.joins_per, order)
  local network = read_window(string.sub(hash, 10), p.wide > 0 and p.wide or math.huge, p.wide_per, order)
  local by_address, wait = order_in_window(s, address, order)
  local by_network, network_wait = order_in_window(s, network, order)
  if not by_address or not by_network then
    wait, network_wait = wait or 0, network_wait or 0
    return nil, math.max(wait, network_wait), wait > network_wait and 'address' or 'network'
  end
  return function()
    for _, w in ipairs({ address, network }) do
      local n = math.min(w.n + 1, PARTS / 2 - 1)
      redis.call('ZADD', JOINS, str(math.floor(w.from / TENTH) * PARTS + 2 * n + w.was_full), w.who)
    end
  end, math.max(by_address, by_network)
end

-- forget_joins removes up to n windows that no token can fall into any more, and returns their number.
local function forget_joins(s, p, n)
  local before = math.floor((s.time - math.max(p.joins_per, p.wide_per) - p.absence) / TENTH) - 1
  local old = redis.call('ZRANGEBYSCORE', JOINS, '-inf', str(before * PARTS), 'LIMIT', 0, n)
  if #old > 0 then redis.call('ZREM', JOINS, unpack(old)) end
  return #old
end
