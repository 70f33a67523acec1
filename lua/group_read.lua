#!lua flags=no-writes
-- group_read: reads the settings and figures of groups.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, by, name, ...
-- RETURNS: for each {spec, status and figures as name, value, ...}, or false where there is none; by is id, which finds no group that is being deleted, or key
-- INVARIANT: reads only; results are read with single groups, by id.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs, bulkreply

local reply = {}
for i = 4, #ARGV do
  local by_id = ARGV[3] == 'id'
  local g = by_id and named_group(ARGV[i]) or not by_id and bulk_group(ARGV[i])
  reply[#reply + 1] = g and group_reply(g, by_id)
end
return reply
