#!lua flags=no-writes
-- webhooks_read: reads the queue of events for operators.
-- KEYS: lease, dead, counts
-- ARGV: now, most (dead events)
-- RETURNS: {gateway that sends or '', list of name and number, dead events, newest first}. A dead event is a line with endpoint, id, µs when it
--   was queued and given up, tries and length of the error; then the error and the body
-- INVARIANT: it changes nothing.
-- INCLUDE: clock

local holder, till = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%d+)$')
if not holder or tonumber(till) <= clock_now(ARGV[1]) then holder = '' end
return { holder, redis.call('HGETALL', KEYS[3]), redis.call('LRANGE', KEYS[2], 0, tonumber(ARGV[2]) - 1) }
