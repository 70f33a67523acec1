#!lua flags=allow-oom
-- group_seal: ends the submission to a group.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group, abandon (1: incomplete chunks stay incomplete)
-- RETURNS: {the group, groups that ended as COMPLETED, as FAILED} or {reason, detail}
-- INVARIANT: no new job after the seal; no seal while a chunk is incomplete, except with abandon.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkreply

local g = named_group(ARGV[3])
if not g then return { 'not_found' } end
if g[G_SEALED] == 1 then return { group_reply(g, true), 0, 0 } end
if g[G_STATUS] ~= CREATED then return { 'wrong_state', g[G_STATUS] } end
if g[G_CHUNKS_OPEN] > 0 and ARGV[4] ~= '1' then return { 'chunk_open', int(g[G_CHUNKS_OPEN]) } end
seal_group(g)
if g[G_STATUS] <= RUNNING then work.stop(g) end -- from now on stop_share applies to all jobs of the group
requeue(g)
if g[G_QUEUED] == 1 then wake_worker() end
bulk_save()
return { group_reply(g, true), tally.ends[COMPLETED], tally.ends[FAILED] }
