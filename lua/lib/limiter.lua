-- limiter: the rate limiters that rooms and bulk queues share.
--
-- A limiter is a table {level, at, rate, burst}: level in billionths of a
-- token, at in microseconds, rate in thousandths of a token a second, burst in
-- thousandths of a token. A microsecond times a thousandth a second is exactly
-- a billionth, so refilling never rounds. All values stay below 2^53.

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

  -- available is how many whole tokens can be taken now; none at rate 0, which
  -- means "nobody" whatever was saved up before.
  available = function(b)
    if b.rate <= 0 then return 0 end
    return math.floor(b.level / TOKEN)
  end,

  take = function(b, n)
    b.level = b.level - n * TOKEN
  end,

  -- wait is the time in microseconds until n tokens are there; -1: never.
  wait = function(b, n)
    local missing = n * TOKEN - b.level
    if b.rate <= 0 or n * 1000 > b.burst then return -1 end
    if missing <= 0 then return 0 end
    return math.ceil(missing / b.rate)
  end,
}
