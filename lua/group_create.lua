#!lua
-- group_create: creates a group. A repeated call with the same content changes nothing.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, id, spec, tenant, type, level, weight, rate, concurrency, base, held, callback, redrive, own (1: by a tenant's token), most (groups of the tenant; 0: any number), stop_count, stop_share, counts (1: outcomes are counted on arrival), most_bad, bad_share, results (0 all, 1 failures, 2 none), start_at, expires (µs; 0: none), unique (key; empty: none), within (µs for which it may be used once), after (1: it starts if its predecessors have completed, 2: if one has not, 3: in any case; 0: it has none), predecessors (ids, separated by blanks), quiet (as the record has it; empty: none), part (of a split group, from 1; 0: it is whole; above 1 it waits, if there are predecessors, until group_patch has it begin), shards (of the parts, in words), whole_rate, whole_concurrency (of which the part has rate and concurrency)
-- RETURNS: {1 created, 0 existed; the group}, {'exists', its spec, the group}, {'deleted'} (a group of this id is being deleted) {'quota', groups of the tenant} or {'past', the time} (expires has passed) {'unknown', id}, {'followed', id} (a predecessor that does not exist, or for which too many groups wait), {'unmet'} (its predecessors have ended, and it could never start) or {'duplicate', the id of the first group under the key, and that group if it still exists}
-- INVARIANT: a group has one record; its spec never changes.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkreply, bulkunique, bulkchain, bulkcreate

local gkey = redis.call('HGET', K.names, ARGV[3])
if gkey then
  local there, g = redis.call('HGET', K.groups, gkey), bulk_group(gkey)
  if g[G_DELETED] == 1 then return { 'deleted' } end
  if there ~= ARGV[4] then return { 'exists', there, group_reply(g, true) } end
  return { 0, group_reply(g, true) }
end
local first = ARGV[25] ~= '' and unique.first('g' .. ARGV[5] .. '/' .. ARGV[25])
if first and first ~= ARGV[3] then
  local there = named_group(first)
  return { 'duplicate', first, there and group_reply(there, true) or nil }
end
if tonumber(ARGV[24]) > 0 and tonumber(ARGV[24]) <= now then return { 'past', int(now) } end
local after, list, statuses = tonumber(ARGV[27]), nil, nil
if after > 0 and tonumber(ARGV[30]) > 1 then
  list, statuses = {}, {} -- the first part decides
elseif after > 0 then
  local id
  list, statuses, id = chain.find(ARGV[28])
  if not list then return { statuses, id } end
  local starts = chain.decide(after, statuses)
  if starts == false then return { 'unmet' } end
  if starts then list = nil end
end
local g, has = create_group({ unpack(ARGV, 3) }, nil, list, statuses)
if not g then return { 'quota', has } end
bulk_save()
return { 1, group_reply(g, true) }
