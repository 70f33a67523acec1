#!lua flags=allow-oom
-- layout_claim: marks an empty store with the data layout of the first program, and replies that layout to every later one.
-- KEYS:      layout (a hash)
-- ARGV:      now, version
-- RETURNS:   {layout version of the store, microseconds when it was first marked}
-- INVARIANT: a program never works on a data layout that it does not know
-- INCLUDE:   clock
local version = tonumber(ARGV[2])
if not version or version < 1 or version % 1 ~= 0 then
  return redis.error_reply('ERR version must be a whole number from 1')
end
local now = clock_now(ARGV[1])

local held = redis.call('HMGET', KEYS[1], 'version', 'since')
if held[1] then
  return {tonumber(held[1]), tonumber(held[2])}
end
redis.call('HSET', KEYS[1], 'version', int(version), 'since', int(now))
return {version, now}
