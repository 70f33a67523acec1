#!lua flags=allow-oom
-- limiter_take: takes tokens from a limiter that stands alone.
-- KEYS: limiter
-- ARGV: now, strategy, rate, burst, want
-- RETURNS: {tokens taken, µs until one more is there (-1: never)}
-- INVARIANT: never over the limit (1): refill and take are one step.
-- INCLUDE: clock, limiter
local now = clock_now(ARGV[1])
local strategy = limiter[ARGV[2]]
if not strategy then return redis.error_reply('ERR unknown strategy ' .. ARGV[2]) end
local h = redis.call('HMGET', KEYS[1], 'level', 'at')
local b = { rate = tonumber(ARGV[3]), burst = tonumber(ARGV[4]) }
b.level = h[1] and tonumber(h[1]) or b.burst * 1000000
b.at = h[2] and tonumber(h[2]) or now
strategy.refill(b, now)
local n = math.min(tonumber(ARGV[5]), strategy.available(b))
strategy.take(b, n)
redis.call('HSET', KEYS[1], 'level', int(b.level), 'at', int(b.at))
-- Full again after burst/rate: nothing is lost when it is forgotten then, and too much would be gained before.
local full = b.rate > 0 and math.ceil(b.burst / b.rate) or 2592000
redis.call('EXPIRE', KEYS[1], int(full + 60))
return { n, strategy.wait(b, 1) }
