#!lua
-- origin_jobs: tells gateways that bulk work which gives way to visitors runs against an origin.
-- KEYS: jobs
-- ARGV: now
-- RETURNS: {OK}
-- INVARIANT: what was said is forgotten when it is said no more.
-- INCLUDE: clock

redis.call('SET', KEYS[1], int(clock_now(ARGV[1])), 'EX', 60)
return { 'OK' }
