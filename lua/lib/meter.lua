-- meter: a room's limiter, and the lease of its origin's budget.

-- leased is a meter that gives no more than is left of the lease of the origin's budget.
-- A lease ends by this store's clock; keep_time ends it where that was set.
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

-- take_lease adds a lease, given as 'number units till' and maybe the room's share of the budget (thousandths a second), to what
-- is left. One that comes late is void, and each counts once, whoever brings it. No lease is for longer than MOST.
local MOST = 1500000
local function take_lease(s, text)
  local number, units, till, share = string.match(text, '^(%d+) (%d+) (%d+) ?(%d*)$')
  if not number or tonumber(number) <= s.lease_number then return end
  s.lease_number = tonumber(number)
  if share ~= '' then redis.call('HSET', MINUTES, str(math.floor(s.wall / 60000000)) .. 's', share) end
  if s.wall >= s.lease_till then s.lease = 0 end
  if s.wall >= tonumber(till) then return end
  s.lease = s.lease + tonumber(units)
  s.lease_till = math.min(math.max(s.lease_till, tonumber(till)), s.wall + MOST)
end

-- LEAK: what a leaky bucket lets out at once, µs of the rate; ticks are that far apart when a gateway is busy.
local LEAK = 500000

local function fixed(strategy) return STRATEGIES[strategy + 1] == 'fixed_window' end

-- spent is the level of a limiter that has nothing to give, full that of one that has granted nothing.
local function spent(p)
  local _, most = window(p)
  return fixed(p.strategy) and most or 0
end

local function full(p) return fixed(p.strategy) and 0 or p.burst * 1000000 end

-- begin_limiter gives the room a new limiter at that level; it earns from its first use on.
local function begin_limiter(s, p, level)
  s.level, s.strategy, s.was = level, p.strategy, 0
end

-- meter is the room's limiter, brought to now. available() is how many may be admitted, take(n) takes them, rest() ends a
-- tick, save() puts its state back into s. s.at is the time of its last use: a window's begins before it.
--
-- Until now it earned what it did when it was used last: a rate that was changed since counts from now on. Another strategy
-- begins with nothing to give, but for those whose level is in tokens alike.
local function meter(s, p)
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
  -- What gateways let in while the store was away is paid first.
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
    -- Of what nobody took a leaky bucket keeps one: whoever comes to a quiet room is let in at once.
    rest = function() if leaky then b.level = math.min(b.level, TOKEN) end end,
    save = function() s.level, s.at, s.strategy, s.was, s.owed = b.level, s.now, p.strategy, p.rate, owed end,
    -- owe charges what a gateway let in while the store was away. Of a long outage no more than comes due in GAP: for as
    -- long nobody is admitted after it.
    owe = function(n) owed = math.min(owed + n, math.max(owed, math.floor(p.rate * GAP / TOKEN))) end,
    -- ahead is how many will be available in so many µs, if none is taken.
    ahead = function(us)
      local c = {}
      for k, x in pairs(b) do c[k] = x end
      strategy.refill(c, s.now + us)
      return strategy.available(c)
    end,
  }
  return p.budgeted == 1 and leased(s, m) or m
end

-- appetite is how many units of the budget the room could use by its next tick beyond its
-- lease; and how many it likes to hold besides for those who come.
local NEXT_TICK = 350000
local function appetite(s, p)
  if p.budgeted == 0 or p.paused or p.reject or p.gathering or s.now + NEXT_TICK < s.hold then return 0, 0 end
  local most = meter(s, p).ahead(NEXT_TICK)
  if p.max_active > 0 then most = math.min(most, p.max_active - active(s)) end
  local line
  if p.min_wait > 0 then
    line = redis.call('ZCOUNT', LINE, '-inf', str(s.time + NEXT_TICK - p.min_wait))
  else
    line = redis.call('ZCARD', LINE)
  end
  if p.head_window > 0 then line = math.min(line, p.head_window) end
  line = math.min(line, most)
  local want = math.max(0, line - s.lease)
  if p.min_wait > 0 then return want, 0 end
  -- 100 ms of the room's own rate, and twice what came in as much of the last second.
  local lately = num(redis.call('HGET', FLOW, str(math.floor(s.now / 1000000) - 1) .. 'a'))
  return want, math.max(0, math.min(most - line, 1 + math.ceil(p.rate / 10000 + 2 * lately * NEXT_TICK / 1000000)))
end
