#!lua
-- origin_jobs: notes that bulk work that yields to visitors runs against an origin.
-- KEYS: jobs
-- ARGV: now
-- RETURNS: {OK}
-- INVARIANT: the note expires when it is not repeated.
-- INCLUDE: clock

redis.call('SET', KEYS[1], int(clock_now(ARGV[1])), 'EX', 60)
return { 'OK' }
