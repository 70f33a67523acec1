#!lua
-- schedule_write: creates, changes or deletes a schedule, unless it was changed meanwhile.
-- KEYS: schedules (hash, id → version, a blank, body), ticks (sorted set, ids by the time of their next run), owners (sorted set, <tenant>/<id>)
-- ARGV: now, id, version (that it must have; 0: it must not exist), body (empty: delete it), next (µs of its next run; 0: none), most (schedules), tenant
-- RETURNS: {1, its new version}, {'changed', version and body as stored; empty: it does not exist} or {'quota', schedules}
-- INVARIANT: of several changes of one version, one is made; versions of a schedule grow, also when it is deleted and created again.
-- INCLUDE: clock

local now, id, next_at, owner = clock_now(ARGV[1]), ARGV[2], tonumber(ARGV[5]), ARGV[7] .. '/' .. ARGV[2]
local there = redis.call('HGET', KEYS[1], id) or ''
local version = tonumber(string.match(there, '^%d+') or 0)
if version ~= tonumber(ARGV[3]) then return { 'changed', there } end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
  redis.call('ZREM', KEYS[3], owner)
  return { 1, 0 }
end
if version == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[6]) then return { 'quota', redis.call('HLEN', KEYS[1]) } end
version = math.max(version + 1, now)
redis.call('HSET', KEYS[1], id, int(version) .. ' ' .. ARGV[4])
redis.call('ZADD', KEYS[3], 0, owner)
if next_at > 0 then redis.call('ZADD', KEYS[2], int(next_at), id) else redis.call('ZREM', KEYS[2], id) end
return { 1, int(version) }
