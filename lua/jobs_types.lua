#!lua flags=no-writes
-- jobs_types: reads the types of jobs that have not ended.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, job (with the short name of its group, as K.jobs has it), ...
-- RETURNS: the type of each job; empty: there is none that has not ended
-- INVARIANT: reads only.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs

local found = {}
for i = 3, #ARGV do
  local g = string.find(ARGV[i], '/', 1, true) and bulk_group(group_of(ARGV[i]))
  local head = g and read_head(redis.call('HGET', K.jobs, ARGV[i]))
  found[i - 2] = head and (head.kind ~= '' and head.kind or g[G_TYPE]) or ''
end
return found
