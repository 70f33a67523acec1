#!lua flags=allow-oom
-- group_delete: marks an ended group for deletion, which its housekeeping does in steps.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group, check (1: change nothing)
-- RETURNS: {1} or {reason, status, or id of the redrive that is open}
-- INVARIANT: a group whose jobs run, or that has to be reduced, called back or redriven, is kept. From this step on only its deletion and its
--   housekeeping find the group by its id.
-- INCLUDE: clock, limiter, fair, bulk, bulklife

local gkey = redis.call('HGET', K.names, ARGV[3])
local g = gkey and bulk_group(gkey)
if not g then return { 'not_found' } end
if g[G_STATUS] <= AGGREGATING then return { 'wrong_state', g[G_STATUS] } end
if ended(g) > g[G_REDUCED] or g[G_STATUS] == CANCELLED and g[G_SWEPT] < 2 then return { 'unswept' } end
if g[G_CALLBACK] == 1 then return { 'callback' } end
local redrive = g[G_REDRIVING] ~= 0 and bulk_group(g[G_REDRIVING])
if is_open(redrive) then return { 'open', redrive[G_ID] } end
if ARGV[4] == '1' then return { 1 } end
g[G_DELETED] = 1
redis.call('ZADD', K.agenda, int(now), gkey)
bulk_save()
return { 1 }
