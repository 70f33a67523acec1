#!lua flags=no-writes
-- group_read: reads the settings and figures of groups.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists
-- ARGV: now, settings, by, name, ...
-- RETURNS: for each {spec, status and figures as name, value, ...}, or false where there is none; by is id or key
-- INVARIANT: reads only; results are read with single groups, by id.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs, bulkreply

local reply = {}
for i = 4, #ARGV do
  local gkey = ARGV[i]
  if ARGV[3] == 'id' then gkey = redis.call('HGET', K.names, gkey) end
  local g = gkey and bulk_group(gkey)
  if not g then
    reply[#reply + 1] = false
  else
    reply[#reply + 1] = group_reply(g, ARGV[3] == 'id')
  end
end
return reply
