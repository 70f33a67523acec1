#!lua
-- group_create: makes a group. Again with the same content it changes nothing.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists
-- ARGV: now, settings, id, spec, tenant, type, level, weight, rate, concurrency, base, held, callback, redrive, own (1: a tenant's token asks), most (groups of the tenant; 0: any number), stop_count, stop_share, counts (1: outcomes are counted as they come), most_bad, bad_share, results (0 all, 1 failures, 2 none)
-- RETURNS: {1 made, 0 was there; the group}, {'exists', its spec, the group} or {'quota', groups of the tenant}
-- INVARIANT: a group has one record; its spec never changes.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs, bulkline

local id, spec, tenant = ARGV[3], ARGV[4], ARGV[5]
local gkey = redis.call('HGET', K.names, id)
if gkey then
  local there = redis.call('HGET', K.groups, gkey)
  if there ~= spec then return { 'exists', there, group_line(bulk_group(gkey), true) } end
  return { 0, group_line(bulk_group(gkey), true) }
end
local t, most = bulk_tenant(tenant), tonumber(ARGV[16])
if most > 0 and t[T_GROUPS] >= most then return { 'quota', t[T_GROUPS] } end
shard.gseq = shard.gseq + 1
local n, digits = shard.gseq, ''
while n > 0 do
  local d = n % 36
  digits = string.sub('0123456789abcdefghijklmnopqrstuvwxyz', d + 1, d + 1) .. digits
  n = (n - d) / 36
end
gkey = digits
local g = {}
for i = 1, G_LENGTH do g[i] = 0 end
g[G_KEY] = gkey
g[G_ID], g[G_TENANT], g[G_TYPE], g[G_WHY] = id, tenant, ARGV[6], ''
g[G_LEVEL], g[G_WEIGHT], g[G_RATE], g[G_CONC], g[G_BASE] = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
g[G_HELD], g[G_STATUS], g[G_CREATED], g[G_TOUCHED] = tonumber(ARGV[12]), CREATED, now, now
g[G_UNIFORM] = tonumber(ARGV[14]) == 0 and 1 or 0 -- a redrive takes over whatever types its group has
g[G_CALLBACK], g[G_OF] = tonumber(ARGV[13]), tonumber(ARGV[14])
g[G_STOP_COUNT], g[G_STOP_SHARE] = tonumber(ARGV[17]), tonumber(ARGV[18])
g[G_TALLY], g[G_MOST_BAD], g[G_BAD_SHARE] = tonumber(ARGV[19]), tonumber(ARGV[20]), tonumber(ARGV[21])
g[G_RESULTS] = tonumber(ARGV[22])
if ARGV[15] == '1' then g[G_INNER], g[G_LEVEL], g[G_SHARE], g[G_BASED] = g[G_LEVEL], 2, 1000, 1 end
groups[gkey] = g
t[T_GROUPS] = t[T_GROUPS] + 1
shard.open_groups = shard.open_groups + 1
redis.call('HSET', K.names, id, gkey)
redis.call('HSET', K.groups, gkey, spec)
redis.call('ZADD', K.index, int(now), gkey)
enlist(g)
plan(g, now + set.silence)
bulk_save()
return { 1, group_line(g, true) }
