#!lua flags=allow-oom
-- limiter_take: takes tokens from a limiter that stands alone, for the tests of lib/limiter.lua.
-- KEYS: limiter
-- ARGV: now, strategy, rate, burst, want, whole (1: all or nothing)
-- RETURNS: {tokens taken, µs until one more, or want as a whole, is there (-1: never)}
-- INVARIANT: never over the limit (1): refill and take are one step.
-- INCLUDE: clock, limiter
local now = clock_now(ARGV[1])
local strategy = limiter[ARGV[2]]
if not strategy then return redis.error_reply('ERR unknown strategy ' .. ARGV[2]) end
local want, whole = tonumber(ARGV[5]), ARGV[6] == '1'
local h = redis.call('HMGET', KEYS[1], 'level', 'at', 'rate')
local b = { rate = tonumber(ARGV[3]), burst = tonumber(ARGV[4]) }
-- A new one has granted nothing: a bucket is full, the others have counted nothing.
b.level = tonumber(h[1] or ((ARGV[2] ~= 'gcra' and ARGV[2] ~= 'fixed_window') and b.burst * 1000000 or 0))
b.at = tonumber(h[2] or 0)
local was = tonumber(h[3] or 0)
strategy.refill(b, now)
strategy.rerate(b, was)
local n = math.min(want, strategy.available(b))
if whole then n = strategy.admits(b, want) and want or 0 end
if n > 0 then strategy.take(b, n) end
-- The state is of the last rate that was above 0.
redis.call('HSET', KEYS[1], 'level', int(b.level), 'at', int(b.at), 'rate', int(b.rate > 0 and b.rate or was))
return { n, strategy.wait(b, whole and want or 1) }
