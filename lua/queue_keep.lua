#!lua flags=allow-oom
-- queue_keep: counts the processes that run, and chooses the one of them that does what one of all has to do.
-- KEYS: keeper, processes
-- ARGV: now, process, last (µs for which a process stays the keeper without another call)
-- RETURNS: {1 if the caller is the keeper, processes}
-- INVARIANT: by one clock there is one keeper at most.
-- INCLUDE: clock

local now, process, last = clock_now(ARGV[1]), ARGV[2], tonumber(ARGV[3])
-- A process counts for as long as three keepers in a row would stay.
redis.call('ZADD', KEYS[2], int(now), process)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', int(now - 3 * last))
local keeper = redis.call('ZSCORE', KEYS[2], redis.call('GET', KEYS[1]) or '')
local mine = redis.call('GET', KEYS[1]) == process
if not mine and (not keeper or now - tonumber(keeper) > last) then
  redis.call('SET', KEYS[1], process)
  mine = true
end
redis.call('EXPIRE', KEYS[1], 3600)
redis.call('EXPIRE', KEYS[2], 3600)
return { mine and 1 or 0, redis.call('ZCARD', KEYS[2]) }
