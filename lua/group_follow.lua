#!lua flags=allow-oom
-- group_follow: notes which groups of other shards wait for a group, and returns whether it has ended.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group,
--   verb (enter: a group is about to wait for it; check: one waits; leave: these no longer wait; list: returns which wait),
--   created (of the group, µs; 0: any),
--   shard, id, ... (of each waiting group)
-- RETURNS: {status, created, waiting, ...} or {reason}
--   status   of the group; - until it has ended
--   waiting  for list only: shard and id, separated by a blank, of each group that waits
--   reason   not_found; followed: too many groups wait for it
-- INVARIANT: a group that has not ended has an entry for each group that enters or checks, once.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkchain

local verb, created = ARGV[4], tonumber(ARGV[5])
local pkey = redis.call('HGET', K.names, ARGV[3])
local p = pkey and bulk_group(pkey)
-- A group that is being deleted stays until the groups that wait for it have its end, and takes no others.
if not p or created > 0 and p[G_CREATED] ~= created or verb == 'enter' and p[G_DELETED] == 1 then return { 'not_found' } end
local status, reply = chain.status(p), {}

local function entry(i) return 'r' .. pkey .. ' ' .. ARGV[i] .. ' ' .. ARGV[i + 1] end

if verb == 'leave' then
  for i = 6, #ARGV, 2 do p[G_FAR_FOLLOWED] = p[G_FAR_FOLLOWED] - redis.call('ZREM', K.links, entry(i)) end
  if status ~= '-' then plan_tend(p, now) end
elseif verb == 'list' then
  for _, link in ipairs(chain.links('r', pkey)) do reply[#reply + 1] = string.match(link, ' (.+)$') end
elseif status == '-' and not redis.call('ZSCORE', K.links, entry(6)) then
  if verb == 'enter' and chain.crowded(p) then return { 'followed' } end
  redis.call('ZADD', K.links, 0, entry(6))
  p[G_FAR_FOLLOWED] = p[G_FAR_FOLLOWED] + 1
end
bulk_save()
return { status, int(p[G_CREATED]), unpack(reply) }
