#!lua flags=allow-oom
-- queue_offer: offers a group to the processes that meet its need, which the caller does not.
-- KEYS: offers, offered
-- ARGV: now, need (without blanks), group, last (µs after which an offer that was not repeated is dropped)
-- RETURNS: {1 if the group was on offer already}
-- INVARIANT: an offer that no process repeats expires soon.
-- INCLUDE: clock

local now, offer, last = clock_now(ARGV[1]), ARGV[2] .. ' ' .. ARGV[3], tonumber(ARGV[4])
for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now - last), 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[1], old)
  redis.call('ZREM', KEYS[2], old)
end
local new = redis.call('ZADD', KEYS[1], 0, offer)
redis.call('ZADD', KEYS[2], int(now), offer)
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, math.ceil(last / 1000)) end
return { 1 - new }
