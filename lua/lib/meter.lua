-- meter: a room's limiter, and the lease of its origin's budget.

-- leased bounds a limiter by what is left of the lease of the origin's budget. A lease ends by this store's clock; keep_time ends it where
-- that clock was set.
local function leased(s, m)
  if s.wall >= s.lease_till then s.lease = 0 end
  local available, take = m.available, m.take
  m.available = function() return math.min(available(), s.lease) end
  m.take = function(n)
    take(n)
    s.lease = s.lease - n
  end
  return m
end

-- add_lease adds a lease, 'number units till' and optionally the room's share of the budget (thousandths a second), to what is left. A late
-- lease is void, and each counts once, whichever gateway brings it. No lease lasts longer than MOST.
local MOST = 1500000
local function add_lease(s, text)
  local number, units, till, share = string.match(text, '^(%d+) (%d+) (%d+) ?(%d*)$')
  if not number or tonumber(number) <= s.lease_number then return end
  s.lease_number = tonumber(number)
  if share ~= '' then redis.call('HSET', MINUTES, str(math.floor(s.wall / 60000000)) .. 's', share) end
  if s.wall >= s.lease_till then s.lease = 0 end
  if s.wall >= tonumber(till) then return end
  s.lease = s.lease + tonumber(units)
  s.lease_till = math.min(math.max(s.lease_till, tonumber(till)), s.wall + MOST)
end

-- LEAK is the burst of a leaky bucket in µs of the rate; the ticks of a busy gateway are as far apart.
local LEAK = 500000

local function fixed(strategy) return STRATEGIES[strategy + 1] == 'fixed_window' end

-- spent returns the level of a limiter that grants nothing, full that of one that has granted nothing yet.
local function spent(p)
  local _, most = window(p)
  return fixed(p.strategy) and most or 0
end

local function full(p) return fixed(p.strategy) and 0 or p.burst * 1000000 end

-- begin_limiter starts a new limiter at a level; it earns from its first use on.
local function begin_limiter(s, p, level)
  s.level, s.strategy, s.was = level, p.strategy, 0
end

-- room_limiter returns the room's limiter, refilled to now. available() returns how many may be admitted, take(n) takes them, rest() ends
-- a tick, save() writes its state back into s. s.at is the time of its last use; a window began before it.
--
-- Until now it earned at the rate of its last use: a changed rate counts from now on. Another strategy starts with nothing to grant, except
-- among those whose level is in tokens.
local function room_limiter(s, p)
  local b = { level = s.level, at = s.at, rate = s.was, burst = p.burst }
  local strategy = limiter[STRATEGIES[p.strategy + 1]]
  local leaky = STRATEGIES[p.strategy + 1] == 'leaky_bucket'
  if leaky then b.burst = math.max(1000, math.floor(p.rate * LEAK / 1000000)) end
  if fixed(p.strategy) then
    if fixed(s.strategy) then
      b.at = s.at - s.at % window(b)
    else
      b.at, b.level = s.now - s.now % window(p), spent(p)
    end
    b.rate = p.rate
    strategy.refill(b, s.now)
  else
    if fixed(s.strategy) then b.at, b.level = s.now, 0 end
    strategy.refill(b, s.now)
    b.rate = p.rate
  end
  -- Visitors that gateways admitted while the store was away are charged first.
  local owed = s.owed
  if owed > 0 then
    local paid = math.min(owed, strategy.available(b))
    if paid > 0 then strategy.take(b, paid) end
    owed = owed - paid
  end
  local m = {
    available = function() return strategy.available(b) end,
    take = function(n) if n > 0 then strategy.take(b, n) end end,
    empty = function() b.level = spent(p) end,
    -- A leaky bucket keeps one unused token, so that an arrival at a quiet room is admitted immediately.
    rest = function() if leaky then b.level = math.min(b.level, TOKEN) end end,
    save = function() s.level, s.at, s.strategy, s.was, s.owed = b.level, s.now, p.strategy, p.rate, owed end,
    -- owe charges n visitors whom a gateway admitted while the store was away. After a long outage the charge is at most what comes due
    -- in GAP: nobody is admitted for that long after the outage.
    owe = function(n) owed = math.min(owed + n, math.max(owed, math.floor(p.rate * GAP / TOKEN))) end,
    -- ahead returns how many will be available in us microseconds, if none is taken.
    ahead = function(us)
      local c = {}
      for k, x in pairs(b) do c[k] = x end
      strategy.refill(c, s.now + us)
      return strategy.available(c)
    end,
  }
  return p.budgeted == 1 and leased(s, m) or m
end

-- wanted_units returns how many units of the budget the room could use by its next tick beyond its lease, and how many it wants to hold
-- besides for arrivals.
local NEXT_TICK = 350000
local function wanted_units(s, p)
  if p.budgeted == 0 or p.paused or p.reject or p.sold_out or p.prequeue or s.now + NEXT_TICK < s.hold then return 0, 0 end
  local most = room_limiter(s, p).ahead(NEXT_TICK)
  if p.max_active > 0 then most = math.min(most, p.max_active - active(s)) end
  local queued
  if p.min_wait > 0 then
    queued = redis.call('ZCOUNT', QUEUE, '-inf', str(s.time + NEXT_TICK - p.min_wait))
  else
    queued = redis.call('ZCARD', QUEUE)
  end
  if p.head_window > 0 then queued = math.min(queued, p.head_window) end
  queued = math.min(queued, most)
  local want = math.max(0, queued - s.lease)
  if p.min_wait > 0 then return want, 0 end
  -- 100 ms of the room's own rate, and twice the arrivals of NEXT_TICK by the flow of the last second.
  local lately = num(redis.call('HGET', FLOW, str(math.floor(s.now / 1000000) - 1) .. 'a'))
  return want, math.max(0, math.min(most - queued, 1 + math.ceil(p.rate / 10000 + 2 * lately * NEXT_TICK / 1000000)))
end
