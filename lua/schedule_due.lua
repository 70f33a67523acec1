#!lua flags=no-writes
-- schedule_due: reads the schedules that are due, those due first before others.
-- KEYS: schedules, ticks, owners
-- ARGV: now, bound
-- RETURNS: {the time, then id, and version and body as stored, of each}
-- INVARIANT: reads only.
-- INCLUDE: clock

local now = clock_now(ARGV[1])
local reply = { int(now) }
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now), 'LIMIT', 0, tonumber(ARGV[2]))) do
  local text = redis.call('HGET', KEYS[1], id)
  if text then reply[#reply + 1], reply[#reply + 2] = id, text end
end
return reply
