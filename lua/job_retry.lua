#!lua flags=allow-oom
-- job_retry: ends the wait of one job for its next try or its run_at.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group, job
-- RETURNS: {1}, {'ended', letter of its record}, {'no_delay', running or pending} or {reason, detail}
-- INVARIANT: limits hold.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulkjobs, bulkleases

local g, gkey = named_group(ARGV[3])
if not g then return { 'not_found' } end
local jobkey = gkey .. '/' .. ARGV[4]
local record = redis.call('HGET', K.jobs, jobkey)
if record == 'K\n' then return { 'not_kept', 1 } end
if not record then return g[G_GONE] > 0 and { 'not_kept', 0 } or { 'no_job' } end
if string.sub(record, 1, 1) ~= 'P' then return { 'ended', string.sub(record, 1, 1) } end
if g[G_STATUS] > AGGREGATING then return { 'wrong_state', g[G_STATUS] } end
if redis.call('ZREM', K.waiting, jobkey) == 0 then return { 'no_delay', (redis.call('ZSCORE', K.leases, jobkey) or batches.search(jobkey)) and 'running' or 'pending' } end
redis.call('ZREM', K.refused, refused_of('N', g, jobkey), refused_of('S', g, jobkey))
to_front(g, jobkey)
requeue(g)
if g[G_QUEUED] == 1 then wake_worker() end
bulk_save()
return { 1 }
