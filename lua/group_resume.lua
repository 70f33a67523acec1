#!lua flags=allow-oom
-- group_resume: records the end of a group of another shard for groups that wait for it; their housekeeping decides whether they start.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, from (the predecessor's shard and creation, as links have them), predecessor (its id), status (of its end; -: change nothing), group, ...
-- RETURNS: {code for each group}
-- REPLY NO_GROUP: 0  there is no such group
-- REPLY NOT_WAITING: 1  it does not wait for the predecessor, or no longer
-- REPLY WAITING: 2  it waits for the predecessor
-- INVARIANT: an end is recorded once, and only for a group that waits for this very predecessor.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkchain

local from, id, status, codes = ARGV[3], ARGV[4], ARGV[5], {}
for i = 6, #ARGV do
  local g = named_group(ARGV[i])
  local code = REPLY_NOT_WAITING
  if not g then
    code = REPLY_NO_GROUP
  elseif chain.waits_for(g, from, id) then
    if status == '-' then code = REPLY_WAITING else chain.record(g, from, id, status) end
  end
  codes[#codes + 1] = code
end
bulk_save()
return codes
