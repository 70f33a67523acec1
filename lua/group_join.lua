#!lua flags=allow-oom
-- group_join: ends a part of a split group, when the jobs of all parts have ended; the first part ends the whole group.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group, fence (of the reducer; 0: the outcomes were counted), status, others (counts of the other parts), result
-- RETURNS: {code, the group} or {reason}
-- REPLY JOINED: 1  this call has ended the part
-- REPLY NOT_JOINED: 0  it has ended before, its jobs have not all ended, or another reducer has taken over
-- INVARIANT: a part ends once; a group that was cancelled stays so, and gets its result. Only the end of the first part is that of
--   the group: its callback and the groups that wait for it follow from it, in the same step.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkreply

local g, gkey = named_group(ARGV[3])
if not g then return { 'not_found' } end
local fence, cancelled = tonumber(ARGV[4]), g[G_STATUS] == CANCELLED
local ready = g[G_STATUS] == AGGREGATING or cancelled and g[G_SWEPT] == 1
if g[G_PART] == 0 or not ready or fence > 0 and (g[G_RFENCE] ~= fence or g[G_REDUCED] ~= ended(g)) then return { REPLY_NOT_JOINED } end
g[G_REDUCED] = ended(g)
if g[G_PART] == 1 then
  g[G_OTHERS] = ARGV[6]
  redis.call('HSET', K.sums, gkey, '!\n' .. ARGV[7])
end
if cancelled then
  g[G_SWEPT] = 2
  chain.note_end(g)
else
  set_status(g, tonumber(ARGV[5]))
  g[G_FINISHED] = now
  shard.open_groups = shard.open_groups - 1
end
redis.call('ZADD', K.agenda, int(now), gkey)
bulk_save()
return { REPLY_JOINED, group_reply(g, true) }
