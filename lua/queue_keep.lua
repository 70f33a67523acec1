#!lua flags=allow-oom
-- queue_keep: counts the processes that run, chooses the keeper among them, and hands over groups that another process could not continue.
-- KEYS: keeper, processes, workers, offers, offered
-- ARGV: now, process, last (µs for which a process stays the keeper without another call), status (JSON of the process's status; empty: as before), needs (that the caller meets), ...
-- RETURNS: {1 if the caller is the keeper, processes, groups handed over ...}
-- INVARIANT: by one clock there is one keeper at most; an offer is taken by one process.
-- INCLUDE: clock

local now, process, last = clock_now(ARGV[1]), ARGV[2], tonumber(ARGV[3])
-- A process counts as running for three times as long as a keeper stays.
redis.call('ZADD', KEYS[2], int(now), process)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now - 3 * last))) do
  redis.call('ZREM', KEYS[2], gone)
  redis.call('HDEL', KEYS[3], gone)
end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[3], process, ARGV[4]) end
local keeper = redis.call('ZSCORE', KEYS[2], redis.call('GET', KEYS[1]) or '')
local mine = redis.call('GET', KEYS[1]) == process
if not mine and (not keeper or now - tonumber(keeper) > last) then
  redis.call('SET', KEYS[1], process)
  mine = true
end
for i = 1, 3 do redis.call('EXPIRE', KEYS[i], 3600) end
local reply = { mine and 1 or 0, redis.call('ZCARD', KEYS[2]) }
for i = 5, #ARGV do
  for _, offer in ipairs(redis.call('ZRANGEBYLEX', KEYS[4], '[' .. ARGV[i] .. ' ', '(' .. ARGV[i] .. '!', 'LIMIT', 0, 64)) do
    redis.call('ZREM', KEYS[4], offer)
    redis.call('ZREM', KEYS[5], offer)
    reply[#reply + 1] = string.sub(offer, #ARGV[i] + 2)
  end
end
return reply
