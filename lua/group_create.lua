#!lua
-- group_create: creates a group. A repeated call with the same content changes nothing.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, id, spec, tenant, type, level, weight, rate, concurrency, base, held, callback, redrive,
--   own (1: by a tenant's token),
--   most (groups of the tenant; 0: any number),
--   stop_count, stop_share,
--   counts (1: outcomes are counted on arrival),
--   most_bad, bad_share,
--   results (0: all, 1: failures, 2: none),
--   start_at,
--   expires (µs; 0: none),
--   unique (key; empty: none),
--   within (µs for which the key may be used once),
--   after (1: the group starts if its predecessors have completed, 2: if one has not, 3: in any case; 0: it has none),
--   predecessors (ids, separated by blanks),
--   quiet (as the record has it; empty: none),
--   part (of a split group, from 1; 0: not split; a part above 1 that has predecessors waits until group_patch has it begin),
--   shards (of the parts, in words),
--   whole_rate, whole_concurrency (of the whole split group; rate and concurrency are those of the part)
-- RETURNS: one of
--   {1, group}                the group was created
--   {0, group}                it existed, with the same spec
--   {'exists', spec, group}   it existed, with another spec
--   {'deleted'}               a group of this id is being deleted
--   {'quota', number}         the tenant has this number of groups, and may have no more
--   {'past', time}            expires has passed; the time is now
--   {'unknown', id}           this predecessor does not exist
--   {'followed', id}          too many groups wait for this predecessor
--   {'unmet'}                 the predecessors have ended, and the group could never start
--   {'duplicate', id, group}  this group was the first under the key; the record is there while the group exists
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
