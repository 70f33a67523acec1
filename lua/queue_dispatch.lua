#!lua flags=allow-oom
-- queue_dispatch: does one round: returns orphaned and due jobs to their groups, and opens gates, including those that a former rate has closed.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, run_id, bound,
--   alive (µs for which the caller has made rounds or tried to),
--   types (that this process runs, in words; empty in most rounds),
--   keeper (1: the caller is the keeper)
-- RETURNS: {moved, recovered, dead, skipped, gates opened, µs to the next (-1: none), 1 if there is more, groups that ended as COMPLETED, as
--   FAILED, then groups with housekeeping}
-- INVARIANT: a job whose lease ended runs again (B2); a crash spends no try; a job dies of its type only after unknown_type_after without
--   a process for it; after a gap no lease ends before its holder had the time to renew it.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkturns, bulkleases, breakers, bulkunique

local bound = tonumber(ARGV[4])
local moved, recovered, dead, skipped, more = 0, 0, 0, 0, 0
-- The store was restarted, failed over, or did not reply: holders of leases must be able to renew them first.
-- Processes may be connected to different servers of one store, so a run_id counts as new only when it is not among the last four. A caller
-- that may not read it sends none.
local known = redis.call('HGET', K.state, 'run_id')
-- The pause is measured from the time of the last round, because a call that waited in the buffers of a halted server cannot measure it.
-- Where the caller has only just started, there are two cases. Either no process ran, and all holders of leases are dead. Or the store was
-- away, and live holders renew their leases as soon as it is back: they have a third of a lease for it. Leases are renewed while more than
-- half is left, so a short pause ends none.
local moved_on = known and ARGV[3] ~= '' and not string.find(' ' .. known .. ' ', ' ' .. ARGV[3] .. ' ', 1, true)
local silent = shard.beat > 0 and now - shard.beat >= set.lease / 3
if moved_on or silent and tonumber(ARGV[5]) >= set.lease / 3 then
  shard.hold = now + set.lease
elseif silent then
  shard.hold = math.max(shard.hold, now + math.floor(set.lease / 3))
end
shard.beat = now
if moved_on or not known and ARGV[3] ~= '' then
  local list = { ARGV[3] }
  for id in string.gmatch(known or '', '%S+') do
    if #list < 4 then list[#list + 1] = id end
  end
  redis.call('HSET', K.state, 'run_id', table.concat(list, ' '))
end

-- spread returns a number in [0, 1) that differs from fence to fence.
local function spread(fence)
  return (fence % 10007 * 7919 % 10007) / 10007
end

local queued, touched = shard.queued, {}

-- recover returns a job to those that wait whose lease has ended. text is its record of runs, if it has one.
local function recover(jobkey, run, text)
  types.release(text, run.mark)
  local g = bulk_group(group_of(jobkey))
  local t = bulk_tenant(g[G_TENANT])
  work.release(g, t)
  touched[g[G_KEY]] = g
  recovered = recovered + 1
  run.crashes, run.since = run.crashes + 1, 0
  if work.called_off(g, jobkey) then
    cancel_job(g, t, jobkey)
  elseif run.crashes > set.crashes then
    dead = dead + 1
    bury(g, t, jobkey, run, 'crashed', 'the worker that ran it vanished ' .. run.crashes .. ' times (worker.max_crashes)')
  else
    -- The wait grows, and differs from job to job, so that a poison job is separated from its neighbours.
    local wait = math.min(set.max, 250000 * 2 ^ math.min(20, run.crashes - 1) * (1 + spread(run.fence)))
    run.fence = 0
    redis.call('HSET', K.runs, jobkey, write_run(run))
    wait_until(g, jobkey, now + math.floor(wait), 'N')
  end
end

if now >= shard.hold then
  for _, jobkey in ipairs(redis.call('ZRANGEBYSCORE', K.leases, '-inf', int(now), 'LIMIT', 0, bound)) do
    redis.call('ZREM', K.leases, jobkey)
    local text = redis.call('HGET', K.runs, jobkey)
    recover(jobkey, read_run(text), text)
  end
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', K.batches, '-inf', int(now), 'LIMIT', 0, bound - recovered)) do
    local b = batches.read(tonumber(name))
    if not b then redis.call('ZREM', K.batches, name) end -- its record is missing, which audit reports
    for at, jobkey in ipairs(b and b.keys or {}) do
      if recovered == bound then break end
      if b.out[at] == 48 then
        batches.leave(b, at)
        recover(jobkey, batches.run(b, at))
      end
    end
  end
  batches.save()
  if recovered == bound then more = 1 end
end

work.adopt('[0', '({', bound)
local due = redis.call('ZRANGEBYSCORE', K.waiting, '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, bound)
for i = 1, #due, 2 do
  local jobkey = due[i]
  redis.call('ZREM', K.waiting, jobkey)
  local g = bulk_group(group_of(jobkey))
  redis.call('ZREM', K.refused, refused_of('N', g, jobkey), refused_of('S', g, jobkey))
  if g[G_STATUS] == CANCELLED then
    skipped = skipped + 1
    cancel_job(g, bulk_tenant(g[G_TENANT]), jobkey)
  elseif g[G_EXPIRING] == 1 and types.expired(jobkey) then
    dead = dead + 1
    bury(g, bulk_tenant(g[G_TENANT]), jobkey, read_run(redis.call('HGET', K.runs, jobkey)), 'expired', 'the job had not started at its expires_at')
  else
    moved = moved + 1
    to_front(g, jobkey, string.format('%016.0f00000', tonumber(due[i + 1])))
  end
  touched[g[G_KEY]] = g
end
if #due == 2 * bound then more = 1 end
for kind in string.gmatch(ARGV[6], '%S+') do redis.call('HSET', K.state, 'type:' .. kind, int(now)) end
types.sweep()
-- Once a second: jobs of types that no process has.
if shard.aside + shard.unserved + shard.barred > 0 and now - shard.checked >= 1000000 then
  shard.checked, shard.unserved = now, 0
  if types.free_barred(bound) == bound then more = 1 end
  local names = {}
  for _, kind in ipairs(deferred_kinds('')) do
    local seen = type_seen(kind)
    if now - seen > types.SERVED then
      local first, last = deferred_range('t' .. kind)
      local count = 0
      for _, member in ipairs(redis.call('ZRANGEBYLEX', K.aside, first, last, 'LIMIT', 0, 200)) do
        local gkey = string.match(member, ' (.+)$')
        count = count + redis.call('ZLEXCOUNT', K.aside, deferred_range('j' .. gkey .. ' ' .. kind))
        local old = {}
        for _, job in ipairs(dead < bound and deferred_members(gkey, kind, bound - dead) or {}) do
          local since = tonumber(string.sub(string.match(job, '^j%S+ %S+ (%d+) '), 1, 16))
          if now - math.max(since, seen) <= set.unknown_after then break end
          old[#old + 1] = job
        end
        if old[1] then
          local g = bulk_group(gkey)
          local t = bulk_tenant(g[G_TENANT])
          for _, jobkey in ipairs(take_deferred(g, kind, old)) do
            if g[G_STATUS] == CANCELLED then
              cancel_job(g, t, jobkey)
            else
              dead, count = dead + 1, count - 1
              bury(g, t, jobkey, read_run(redis.call('HGET', K.runs, jobkey)), 'no_processor',
                'no process has run jobs of type ' .. types.type_of(kind) .. ' for unknown_type_after: configure a processor for it, then redrive')
            end
          end
          touched[gkey] = g
        end
      end
      kind = types.type_of(kind)
      if count > 0 and names[#names] ~= kind then names[#names + 1] = kind end
      shard.unserved = shard.unserved + count
    end
  end
  redis.call('HSET', K.state, 'unserved_types', table.concat(names, ' '))
  if dead >= bound then more = 1 end
end
if unique.lapse(bound) == bound then more = 1 end
local opened = open_gates(bound)
if opened == bound then more = 1 end

-- regate checks part of the gates that open later than in a second, the latest first, and opens those that a former rate of a tenant has closed
-- where a job may start by the caller's configuration. gates_from is the position and time of the last check.
local function regate()
  local last = redis.call('ZREVRANGE', K.gates, 0, 0, 'WITHSCORES')
  if not last[1] or tonumber(last[2]) <= now + 1000000 then return end
  local at, from = string.match(redis.call('HGET', K.state, 'gates_from') or '0 0', '^(%d+) (%d+)$')
  if now - tonumber(at) < 200000 and now >= tonumber(at) then return end
  from = tonumber(from)
  local before, seen, till = opened, 0, nil
  local gates = redis.call('ZREVRANGE', K.gates, from, from + 199, 'WITHSCORES')
  for i = 1, #gates, 2 do
    till = tonumber(gates[i + 1])
    if till <= now + 1000000 then break end
    seen = seen + 1
    local kind, name = string.sub(gates[i], 1, 1), string.sub(gates[i], 3)
    local g = nil
    local had = kind == 'g' and groups[name]
    if kind == 'g' then g = bulk_group(name) end
    local tenant = kind == 't' and name or g and g[G_WHY] == 'rate' and set.policy == 'score' and g[G_TENANT]
    local cached, open = tenant and tenants[tenant], false
    if tenant then
      local t = bulk_tenant(tenant)
      local rate, theirs, own = parts.tenant(t), tenant_limiter(t), g and group_limiter(g)
      open = rate ~= t[T_RATED] and (not theirs or strategy.admits(theirs, 1)) and (not own or strategy.admits(own, 1))
      if open and g then open_group(g) elseif open then open_tenant(t) end
      if open then opened = opened + 1 elseif not cached then tenants[tenant] = nil end -- unchanged: nothing to write
    end
    if g and not open and had == nil then groups[name] = nil end
  end
  from = from + seen - (opened - before)
  if seen < 200 then from = 0 end
  -- Where some gates were opened, the others probably have to be opened too.
  if opened > before then more, at = 1, 0 else at = now end
  redis.call('HSET', K.state, 'gates_from', int(at) .. ' ' .. int(from))
end

-- replan goes through the groups by creation, some in a round, and brings forward housekeeping that is planned for later than the caller's
-- retention and unsealed_after allow: immediately when these have changed, and every ten minutes, because a process with other settings may
-- have planned meanwhile. The field kept has the settings, when the pass began, and the time of creation that it has reached (-1: it is
-- complete). Two groups hardly ever share one.
local function replan()
  local wanted = int(set.keep_jobs) .. ' ' .. int(set.keep_groups) .. ' ' .. int(set.keep_dead) .. ' ' .. int(set.silence)
  local last, began, from = string.match(redis.call('HGET', K.state, 'kept') or '', '^(%d+ %d+ %d+ %d+) (%d+) (-?%d+)$')
  if last ~= wanted or now - tonumber(began) >= 600000000 then
    began, from = int(now), '0'
  elseif from == '-1' then
    return
  end
  if redis.call('ZCOUNT', K.agenda, '-inf', int(now)) >= 64 then return end -- other groups' housekeeping first
  local list = redis.call('ZRANGEBYSCORE', K.index, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 200)
  for i = 1, #list, 2 do
    local gkey, at_latest = list[i], nil
    local had = groups[gkey]
    local g = bulk_group(gkey)
    if g and g[G_STATUS] <= RUNNING then
      at_latest = tend_by(g)
    elseif g and g[G_STATUS] > AGGREGATING and g[G_CALLBACK] ~= 1 and ended(g) <= g[G_REDUCED] and (g[G_STATUS] ~= CANCELLED or g[G_SWEPT] == 2) then
      local jobs_at, dead_at, group_at, left = retention(g)
      at_latest = left > 0 and math.min(dead_at, group_at) or group_at
      if g[G_WHY] ~= 'purging' or g[G_HP] <= g[G_DP] then at_latest = math.min(at_latest, jobs_at) end
    end
    if at_latest then plan_tend(g, math.max(at_latest, now)) end
    if had == nil then groups[gkey] = nil end -- unchanged: nothing to write
  end
  local at = -1
  if #list == 400 then at = math.max(tonumber(list[400]), tonumber(from) + 1) end
  redis.call('HSET', K.state, 'kept', wanted .. ' ' .. began .. ' ' .. int(at))
end
if ARGV[7] == '1' then
  regate()
  replan()
end

for _, g in pairs(touched) do
  requeue(g)
  check_complete(g)
end
if shard.queued > 0 and (moved > 0 or opened > 0 or shard.queued > queued) then wake_worker() end

local next_at = -1
for _, key in ipairs({ K.leases, K.batches, K.waiting, K.gates }) do
  local head = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if head[1] then
    local at = tonumber(head[2])
    if key == K.leases or key == K.batches then at = math.max(at, shard.hold) end
    local wait = math.max(0, at - now)
    if next_at < 0 or wait < next_at then next_at = wait end
  end
end
local reply = { moved, recovered, dead, skipped, opened, int(next_at), more, tally.ends[COMPLETED], tally.ends[FAILED] }
for _, gkey in ipairs(redis.call('ZRANGEBYSCORE', K.agenda, '-inf', int(now), 'LIMIT', 0, 64)) do
  local g = bulk_group(gkey)
  if g then reply[#reply + 1] = g[G_ID] else redis.call('ZREM', K.agenda, gkey) end
end
bulk_save()
return reply
