-- limiter: the rate limiters that rooms and bulk queues share.
--
-- A limiter is a table {level, at, rate, burst}: rate in thousandths of a token
-- a second, burst in thousandths of a token; level and at are its state, two
-- integers whose meaning is the strategy's. A microsecond times a thousandth a
-- second is exactly a billionth of a token, so nothing ever rounds. All values
-- stay below 2^53. A strategy has
--
--   refill(b, now)   brings the state to now (microseconds); called before the others
--   available(b)     how many whole tokens can be taken now
--   admits(b, cost)  whether cost tokens can be taken now
--   take(b, cost)    takes them, after admits
--   wait(b, cost)    microseconds until admits; -1: never
--   rerate(b, was)   after refill, where the rate differed at the last use: a debt stays
--                    the same number of tokens
--   adopt(b, was, now)  gcra and fixed_window only: replaces refill and rerate for a state that the other of the two wrote, at the
--                    rate was. A gcra's arrival time corresponds to the point that a window has reached if it grants its tokens
--                    one after the other. A debt beyond that stays the same number of tokens. The caller writes an adopted
--                    state back only if something was taken from it

local TOKEN = 1000000000

local limiter = {}

limiter.token_bucket = {
  -- refill credits the time since b.at. A clock that went back credits nothing.
  refill = function(b, now)
    local cap = b.burst * 1000000
    local dt = now - b.at
    if dt > 0 then
      -- Compare by time first: dt * rate may not fit for a long dt.
      if b.rate > 0 then
        if dt >= (cap - b.level) / b.rate then
          b.level = cap
        else
          b.level = b.level + dt * b.rate
        end
      end
      b.at = now
    end
    if b.level > cap then b.level = cap end
    if b.level < 0 then b.level = 0 end
  end,

  -- available returns how many whole tokens can be taken now; none at rate 0,
  -- whatever was saved up before.
  available = function(b)
    if b.rate <= 0 then return 0 end
    return math.floor(b.level / TOKEN)
  end,

  admits = function(b, n)
    return b.rate > 0 and b.level >= n * TOKEN
  end,

  take = function(b, n)
    b.level = b.level - n * TOKEN
  end,

  rerate = function() end, -- its level is in tokens

  -- wait returns the time in microseconds until n tokens are there; -1: never.
  wait = function(b, n)
    local missing = n * TOKEN - b.level
    if b.rate <= 0 or n * 1000 > b.burst then return -1 end
    if missing <= 0 then return 0 end
    return math.ceil(missing / b.rate)
  end,
}

-- leaky_bucket grants tokens evenly spaced: like a token bucket, but tokens that are left when some are taken are lost, so that a quiet time
-- saves nothing up. burst is the number that may fall due between two uses, as between two ticks of a room; with a burst of one token the
-- spacing is exact.
limiter.leaky_bucket = {
  refill = limiter.token_bucket.refill,
  rerate = limiter.token_bucket.rerate,
  available = limiter.token_bucket.available,
  admits = limiter.token_bucket.admits,
  wait = limiter.token_bucket.wait,

  take = function(b, n)
    b.level = (b.level - n * TOKEN) % TOKEN
  end,
}

-- adaptive is a token bucket whose rate is adapted.
limiter.adaptive = limiter.token_bucket

-- window returns the length of a window in microseconds, and the thousandths of a token that it grants.
local function window(b)
  local length = b.window or 1000000
  local most = length == 1000000 and b.rate or math.floor(b.rate * length / 1000000)
  if most <= 0 or most >= 1000 then return length, most end
  return math.ceil(TOKEN / b.rate), 1000
end

-- gcra, the generic cell rate algorithm: at is the theoretical arrival time in
-- microseconds, level its fraction in units of 1/rate of one. What is owed at
-- now, (at - now) * rate + level, is then in billionths of a token. A cost above
-- the burst is granted when nothing is owed, and charged in full. Where b is a part of a limit whose burst is b.whole, only the
-- whole grants such a cost: otherwise each part would. wide is then set.
limiter.gcra = {
  refill = function(b, now)
    if b.level >= b.rate then b.level = 0 end -- of another rate
    if b.at < now then b.at, b.level = now, 0 end
    b.now = now
    b.owed = (b.at - now) * b.rate + b.level
  end,

  adopt = function(b, was, now)
    if was <= 0 or b.rate <= 0 then
      b.at, b.level = 0, 0
    else
      local length = window({ rate = was, window = b.window })
      local stop = now - now % length + length
      local at = b.at + math.ceil(b.level * 1000000 / was)
      if at > stop then at = stop + math.ceil((at - stop) * was / b.rate) end
      b.at, b.level = at, 0
    end
    limiter.gcra.refill(b, now)
  end,

  rerate = function(b, was)
    if b.rate <= 0 or was <= 0 or was == b.rate then return end
    b.owed = (b.at - b.now) * was + b.level
    b.at, b.level = b.now + math.floor(b.owed / b.rate), b.owed % b.rate
  end,

  available = function(b)
    if b.rate <= 0 then return 0 end
    local n = math.floor((b.burst * 1000000 - b.owed) / TOKEN)
    if n < 1 then return b.owed <= 0 and 1 or 0 end
    return n
  end,

  admits = function(b, cost)
    if b.whole and b.rate > 0 and cost * 1000 > b.burst and b.burst < b.whole then
      b.wide = true
      return false
    end
    return b.rate > 0 and (b.owed <= 0 or b.owed + cost * TOKEN <= b.burst * 1000000)
  end,

  take = function(b, cost)
    local level = b.level + cost * TOKEN
    b.at = b.at + math.floor(level / b.rate)
    b.level = level % b.rate
    b.owed = b.owed + cost * TOKEN
  end,

  wait = function(b, cost)
    if b.rate <= 0 then return -1 end
    if b.whole and cost * 1000 > b.burst and b.burst < b.whole then return 100000 end
    local target = b.burst * 1000000 - cost * TOKEN
    if target < 0 then target = 0 end
    if b.owed <= target then return 0 end
    return math.ceil((b.owed - target) / b.rate)
  end,
}

-- spread_windows moves tokens above one window's grant to the windows after it.
local function spread_windows(b)
  local length, most = window(b)
  if b.level > most then
    b.at = b.at + (math.ceil(b.level / most) - 1) * length
    b.level = most
  end
end

-- fixed_window: at is the start of the window, level the thousandths of a token
-- used in it. A window is b.window microseconds long, one second where that is
-- missing, or as long as one token takes at a rate below one a window. A
-- window grants at most its share of the rate, so a sliding interval of its length
-- may hold up to twice that. A cost above a window's grant is admitted in an unused
-- window and uses up as many windows as it needs: at is then the start of the last one.
limiter.fixed_window = {
  refill = function(b, now)
    local length = window(b)
    local start = now - now % length
    if start > b.at then b.at, b.level = start, 0 end
    b.now = now
  end,

  adopt = function(b, was, now)
    local start = now - now % window(b)
    local owed, passed = math.max(0, (b.at - now) * was + b.level), math.max(0, math.min(b.at, now) - start)
    if b.at < now then owed = 0 end
    b.at, b.level, b.now = start, math.ceil((owed + passed * b.rate) / 1000000), now
  end,

  available = function(b)
    local _, most = window(b)
    local n = math.floor((most - b.level) / 1000)
    return n > 0 and n or 0
  end,

  admits = function(b, cost)
    local _, most = window(b)
    return most > 0 and (b.level == 0 or b.level + cost * 1000 <= most)
  end,

  -- Tokens that were used in the window stay used, and so do those of the windows to come.
  rerate = function(b, was)
    if b.rate <= 0 or was <= 0 or was == b.rate or b.at <= b.now then return end
    local before, granted = window({ rate = was, window = b.window })
    local length = window(b)
    b.level = b.level + math.ceil((b.at - b.now) / before) * granted
    b.at = b.now - b.now % length
    spread_windows(b)
  end,

  take = function(b, cost)
    b.level = b.level + cost * 1000
    spread_windows(b)
  end,

  -- wait: at need not be the start of a window, because its window may have begun under another rate.
  wait = function(b, cost)
    if b.rate <= 0 then return -1 end
    local length, most = window(b)
    if b.level == 0 or b.level + cost * 1000 <= most then return 0 end
    return b.at - b.at % length + length - b.now
  end,
}

-- default_burst returns the burst that 0 stands for: 100 ms of the rate, and at least one token.
local function default_burst(rate, burst)
  if burst > 0 then return burst end
  return math.max(1000, math.floor(rate / 10))
end
