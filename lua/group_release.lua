#!lua flags=allow-oom
-- group_release: ends the waits for a downstream: of the group, and of its jobs that were refused, retried or crashed.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group, from (cursor of the call before; empty: the first), bound
-- RETURNS: {jobs released, cursor of the next call (empty: none)} or {reason, status}
-- INVARIANT: limits hold, and jobs with a run_at keep waiting; a job is released once.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulkjobs

local g, gkey = named_group(ARGV[3])
if not g then return { 'not_found' } end
if g[G_STATUS] > AGGREGATING then return { 'wrong_state', g[G_STATUS] } end
local busy = g[G_WHY] == 'busy' or g[G_BUSY] > 0
g[G_BUSY] = 0
if busy then open_group(g) end -- a rate that is spent closes the gate again at the next pull
local prefix, bound = 'N' .. g[G_TENANT] .. '/' .. gkey .. '/', tonumber(ARGV[5])
local list = redis.call('ZRANGEBYLEX', K.refused, '(' .. prefix .. ARGV[4], '(N' .. g[G_TENANT] .. '/' .. gkey .. '0', 'LIMIT', 0, bound)
local last = ''
for _, member in ipairs(list) do
  last = string.sub(member, #prefix + 1)
  local jobkey = gkey .. '/' .. last
  redis.call('ZREM', K.waiting, jobkey)
  redis.call('ZREM', K.refused, member)
  to_front(g, jobkey)
end
requeue(g)
if g[G_QUEUED] == 1 then wake_worker() end
bulk_save()
return { #list, #list == bound and last or '' }
