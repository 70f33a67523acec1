#!lua
-- job_submit: adds a single job to the group that takes those of its tenant, type and level now, which it creates where there is none.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings,
--   series (of groups: what the jobs of one have in common),
--   most (open jobs of the tenant; 0: as configured),
--   job,
--   own_id (1: its sender chose it),
--   unique (key; empty: none),
--   within (µs for which the key may be used once),
--   cost,
--   run_at (µs; 0: now),
--   delay (µs, from now),
--   expires (µs; 0: never),
--   payload,
--   elsewhere (open jobs of the tenant in other shards),
--   trace (of the submission, as the record has it; empty: none),
--   id, spec, ... (the arguments of group_create from its id on, for a group that is created)
-- RETURNS: one of
--   {1, group, run_at}            the job was added to this group
--   {'duplicate', group and job}  this job, after a blank, was the first under the key or id
--   {'past', now}                 the job would expire before it may start
--   {'quota', open, setting, 1, limit}   the tenant has this number of open jobs, and the setting limits them to limit
-- INVARIANT: within the time of its key, or of its own id, a tenant's job is accepted once; a group of single jobs is sealed at its time, or when it has enough jobs.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkunique, bulkchain, bulkcreate

-- A group takes jobs for SPAN, jobs that are due later one group a day, and MOST jobs. An id of its own is taken for OWN.
local SPAN, DAY, MOST, OWN = 3600000000, 86400000000, 100000, 86400000000

local id, payload, tenant, kind = ARGV[5], ARGV[13], ARGV[18], ARGV[19]
local names = {}
if ARGV[7] ~= '' then names['j' .. tenant .. '/' .. ARGV[7]] = tonumber(ARGV[8]) end
if ARGV[6] == '1' then names['i' .. tenant .. '/' .. id] = OWN end
for name in pairs(names) do
  local first = unique.first(name)
  if first then return { 'duplicate', first } end
end
local run_at, expires = tonumber(ARGV[10]), tonumber(ARGV[12])
if tonumber(ARGV[11]) > 0 then run_at = now + tonumber(ARGV[11]) end
if expires > 0 and expires <= math.max(now, run_at) then return { 'past', int(now) } end
local t, most = bulk_tenant(tenant), tonumber(ARGV[4])
local open = t[T_OPEN] + tonumber(ARGV[14])
if most > 0 and open >= most then return { 'quota', int(open), 'api_tokens[].max_pending', 1, int(most) } end
if set.quota > 0 and open >= set.quota then return { 'quota', int(open), 'limits.pending_per_tenant', 1, int(set.quota) } end

-- next_group returns the group that takes the job.
local function next_group()
  local day, till = 0, now + SPAN
  if run_at > till then
    till = run_at - run_at % DAY + DAY
    day = till / DAY
  end
  local name = 'r' .. int(day) .. '/' .. ARGV[3]
  local gkey = unique.first(name)
  local g = gkey and bulk_group(gkey)
  if g and g[G_SEALED] == 0 and g[G_STATUS] == CREATED and g[G_DELETED] == 0 and now < g[G_ROLLING] and redis.call('HEXISTS', K.jobs, gkey .. '/' .. id) == 0 then
    if g[G_TOTAL] < MOST then return g end
    g[G_ROLLING] = now
    plan_tend(g, now)
  end
  g = create_group({ unpack(ARGV, 16) }, till)
  unique.note(name, g[G_KEY], till)
  return g
end

local g = next_group()
local jobkey = g[G_KEY] .. '/' .. id
local record = types.head(g, ARGV[9], kind == '' and '-' or kind, expires, ARGV[15]) .. payload
raise_largest(g, G_LARGEST, g[G_TOTAL] == 0, #record)
redis.call('HSET', K.jobs, jobkey, record)
if run_at > now then
  wait_until(g, jobkey, run_at, 'S')
else
  g[G_TP], g[G_TN] = append_ids(K.order, g[G_KEY], g[G_TP], g[G_TN], { id })
  g[G_ADDED], shard.pending = g[G_ADDED] + 1, shard.pending + 1
end
g[G_TOTAL], g[G_TOUCHED] = g[G_TOTAL] + 1, now
tenant_open(t, 1)
requeue(g)
if g[G_QUEUED] == 1 then wake_worker() end
for name, within in pairs(names) do unique.note(name, g[G_ID] .. ' ' .. id, now + within) end
bulk_save()
return { 1, g[G_ID], int(run_at) }
