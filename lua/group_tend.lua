#!lua flags=allow-oom
-- group_tend: does one bounded step of a group's housekeeping: sweeps cancelled and expired jobs, and deletes data past its retention.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group, bound
-- RETURNS: {reason}, or a list of
--   more        1: call again immediately
--   reduce      1: the group is to be reduced; its parts decide what to do, if it is split
--   callback    1: its callback is due
--   gone        1: the group is deleted
--   buried      number of dead letters that were dropped
--   sealed      1: it was sealed because its submission had stopped for too long
--   completed   number of groups that this call ended as COMPLETED
--   failed      number of groups that it ended as FAILED
--   part        number of the part of a split group; 0: not split
--   A group that is gone has no more fields. For the others follow
--   status      of the group as a predecessor; - until it has ended
--   created     µs
--   dropped     1: groups that do not exist no longer have to get its end
--   far, ...    what its chains over shards need (chain.far)
-- INVARIANT: a group that waits for others starts, or is cancelled, once; no accepted job is dropped; a job of an expired group that
--   does not run ends as dead; finished data is deleted after its retention; dead letters are kept for theirs, and their group with them;
--   a group stays until the groups on other shards that wait for it have its end, or for a week.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkchain, outcomes

local gkey = redis.call('HGET', K.names, ARGV[3])
local g = gkey and bulk_group(gkey)
if not g then return { 'not_found' } end
local bound = tonumber(ARGV[4])
local MOST_COST = 1000 -- the largest cost of a job; a job that costs more than the burst starts when the limiter has no debt
local t = bulk_tenant(g[G_TENANT])
local sealed = 0

-- some returns up to n members of the group from a sorted set of one score.
local function some(key, prefix, n)
  return redis.call('ZRANGEBYLEX', key, '[' .. prefix .. gkey .. '/', '(' .. prefix .. gkey .. '0', 'LIMIT', 0, n)
end

local function answer(again, reduce, callback, gone, buried)
  if again == 1 then redis.call('ZADD', K.agenda, int(now), gkey) end -- behind groups that have waited longer
  bulk_save()
  return { again, reduce, callback, gone, buried, sealed, tally.ends[COMPLETED], tally.ends[FAILED], int(g[G_PART]),
    chain.status(g), int(g[G_CREATED]), now >= g[G_FINISHED] + chain.CREATION and 1 or 0, unpack(chain.far(g)) }
end

-- Seal a group whose submission has stopped for too long. An incomplete chunk stays incomplete.
if g[G_STATUS] == CREATED and g[G_SEALED] == 0 and g[G_PART] == 0 and now >= silent_from(g) then
  seal_group(g)
  if g[G_STATUS] <= RUNNING then work.stop(g) end
  requeue(g)
  if g[G_QUEUED] == 1 then wake_worker() end
  sealed = g[G_ROLLING] > 0 and 0 or 1
end

-- The groups that it waits for may all have ended.
if g[G_WAITS] > 0 and g[G_STATUS] <= RUNNING and chain.resume(g) and g[G_STATUS] <= RUNNING then
  requeue(g)
  if g[G_QUEUED] == 1 then wake_worker() end
  check_complete(g)
end

-- sweep ends up to most jobs of the group that neither run nor have ended, and returns their number, and how many of them were pending.
local function sweep(most, finish)
  local n, pending = 0, 0
  for _, kind in ipairs({ 'N', 'S' }) do
    for _, member in ipairs(some(K.refused, kind .. g[G_TENANT] .. '/', most - n)) do
      local jobkey = string.sub(member, 3 + #g[G_TENANT])
      redis.call('ZREM', K.refused, member)
      redis.call('ZREM', K.waiting, jobkey)
      finish(jobkey)
      n = n + 1
    end
  end
  for _, member in ipairs(n < most and work.fronts(g, most - n) or {}) do
    redis.call('ZREM', K.front, member)
    g[G_FRONT] = g[G_FRONT] - 1
    finish(work.job_of(g, member))
    n, pending = n + 1, pending + 1
  end
  for _, kind in ipairs(g[G_ASIDE] > 0 and deferred_kinds(gkey) or {}) do
    for _, jobkey in ipairs(n < most and take_deferred(g, kind, deferred_members(gkey, kind, most - n)) or {}) do
      finish(jobkey)
      n = n + 1
    end
  end
  while n < most and g[G_TAKEN] < g[G_ADDED] do
    local list, _, ends, size = peek_jobs(g, most - n)
    if not list[1] then break end
    for _, jobkey in ipairs(list) do finish(jobkey) end
    pop_jobs(g, #list, list, 0, ends, size)
    shard.pending = shard.pending + #list -- the caller subtracts them
    n, pending = n + #list, pending + #list
  end
  return n, pending
end

-- The group has expired: its jobs that do not run end as dead, and no more can be added.
if g[G_EXPIRES] > 0 and now >= g[G_EXPIRES] and g[G_STATUS] <= RUNNING then
  g[G_EXPIRED] = 1
  dequeue(g)
  if g[G_WAITS] > 0 then chain.leave(g) end
  types.unbar(g)
  local most = math.min(bound, math.max(1, math.floor(STEP_BYTES / math.max(1, g[G_LARGEST])))) -- whose payloads are moved
  local n, pending = sweep(most, function(jobkey)
    bury(g, t, jobkey, read_run(redis.call('HGET', K.runs, jobkey)), 'expired', 'the job had not started when its group expired (expires_at)')
  end)
  shard.pending = shard.pending - pending
  if n >= most then return answer(1, 0, 0, 0, 0) end
  if g[G_SEALED] == 0 then seal_group(g) else check_complete(g) end
end

if g[G_STATUS] == CANCELLED and g[G_SWEPT] == 0 then
  local n = sweep(bound, function(jobkey) cancel_job(g, t, jobkey) end) -- the cancel has subtracted the pending ones
  if n >= bound then return answer(1, 0, 0, 0, 0) end
  if g[G_INFLIGHT] == 0 and g[G_READY] == 0 and g[G_ASIDE] == 0 then
    g[G_SWEPT] = 1
    if g[G_PART] == 0 then chain.note_end(g) end
    if tally.complete(g) and g[G_PART] == 0 then g[G_SWEPT], g[G_REDUCED] = 2, ended(g) end -- with its result
  else
    redis.call('ZADD', K.agenda, int(now + 1000000), gkey)
    return answer(0, 0, 0, 0, 0)
  end
end

if g[G_STATUS] == AGGREGATING and tally.complete(g) and g[G_PART] == 0 then tally.conclude(g) end -- a process of an earlier version has set this status
if g[G_STATUS] <= AGGREGATING then
  local waits = ended(g) > g[G_REDUCED] and not tally.complete(g) or g[G_STATUS] == AGGREGATING or g[G_PART] > 0
  local by = tend_by(g)
  if by then
    redis.call('ZADD', K.agenda, int(by), gkey)
  elseif g[G_STATUS] == AGGREGATING then
    redis.call('ZADD', K.agenda, int(now + 1000000), gkey) -- until group_reduce (finish) plans the end of its data
  else
    redis.call('ZREM', K.agenda, gkey) -- the next outcomes plan it again
  end
  return answer(0, waits and 1 or 0, 0, 0, 0)
end

-- The group has ended. Reduce all its outcomes (a cancelled group's too), call its callback, and delete its data after the retention.
if ended(g) > g[G_REDUCED] or (g[G_STATUS] == CANCELLED and g[G_SWEPT] == 1) then
  redis.call('ZADD', K.agenda, int(now + 1000000), gkey)
  return answer(0, 1, 0, 0, 0)
end
if outcomes.drop(g, bound) then return answer(1, 0, 0, 0, 0) end
if g[G_CALLBACK] == 1 and now >= g[G_FINISHED] + set.keep_groups then g[G_CALLBACK] = 3 end -- its receiver accepted no call within the retention
if g[G_CALLBACK] == 1 then
  redis.call('ZADD', K.agenda, int(now + 5000000), gkey)
  return answer(0, 0, 1, 0, 0)
end

local jobs_at, dead_at, group_at, dead_left = retention(g)
local buried = 0

if now >= dead_at and dead_left > 0 then
  local list = some(K.dead, '', bound)
  for _, jobkey in ipairs(list) do
    redis.call('ZREM', K.dead, jobkey)
    redis.call('HDEL', K.jobs, jobkey)
  end
  g[G_REDRIVEN] = g[G_REDRIVEN] + #list
  local failed = #list < bound and some(K.dead, 'F', bound - #list) or {}
  for _, member in ipairs(failed) do
    redis.call('ZREM', K.dead, member)
    redis.call('HDEL', K.jobs, string.sub(member, 2))
  end
  g[G_KEPT] = g[G_KEPT] - #failed
  if g[G_DELETED] == 0 then buried = #list end
  if #list + #failed == bound then return answer(1, 0, 0, 0, buried) end
end
-- The log of outcomes is deleted page by page, and with each page its jobs, except dead letters and failed jobs that are kept longer. G_HP
-- counts the deleted pages: the pages of the order of submission, which it counted before, are all gone by now.
if now >= jobs_at then
  if g[G_WHY] ~= 'purging' then g[G_WHY], g[G_HP] = 'purging', 0 end
  local n = 0
  while g[G_HP] <= g[G_DP] and n < bound do
    local field = gkey .. ':' .. int(g[G_HP])
    local page = redis.call('HGET', K.done, field)
    for id in string.gmatch(page or '', '[^\n]+') do
      local jobkey = gkey .. '/' .. id
      local letter = redis.call('ZMSCORE', K.dead, jobkey, 'F' .. jobkey)
      if not letter[1] and not letter[2] then redis.call('HDEL', K.jobs, jobkey) end
      n = n + 1
    end
    if page then redis.call('HDEL', K.done, field) else n = n + 1 end
    g[G_HP] = g[G_HP] + 1
  end
  if g[G_HP] <= g[G_DP] then return answer(1, 0, 0, 0, buried) end
end
if g[G_FAR_FOLLOWED] > 0 and now >= g[G_FINISHED] + math.max(set.keep_groups, chain.KEEP) then
  redis.call('ZREMRANGEBYLEX', K.links, '[r' .. gkey .. ' ', '(r' .. gkey .. '!')
  g[G_FAR_FOLLOWED] = 0
end
if now >= group_at and now >= jobs_at and g[G_FAR_FOLLOWED] == 0 then
  -- The replies to chunks, in steps as well: each is stored under its number.
  for _ = 1, bound do
    if g[G_CHUNKS] == 0 then break end
    local number = gkey .. '/' .. int(g[G_CHUNKS])
    local chunk = redis.call('HGET', K.chunks, number)
    redis.call('HDEL', K.chunks, number, gkey .. ':' .. (chunk or ''))
    g[G_CHUNKS] = g[G_CHUNKS] - 1
  end
  if g[G_CHUNKS] > 0 then return answer(1, 0, 0, 0, buried) end
  -- A tenant without settings is deleted with its last group, but only when its limiter has no debt. Otherwise a tenant that deletes group
  -- after group would get a fresh limiter each time.
  local theirs = t[T_GROUPS] == 1 and t[T_RATE] == 0 and tenant_limiter(t)
  local wait = theirs and strategy.wait(theirs, MOST_COST) or 0
  if wait > 0 then
    redis.call('ZADD', K.agenda, int(now + wait), gkey)
    return answer(0, 0, 0, 0, buried)
  end
  for _, place in ipairs(labels.places(g)) do redis.call('ZREM', K.lists, place) end
  redis.call('HDEL', K.names, g[G_ID])
  redis.call('HDEL', K.groups, gkey)
  redis.call('HDEL', K.sums, gkey, gkey .. '#')
  redis.call('ZREM', K.index, gkey)
  types.unbar(g) -- an earlier version has left it
  if g[G_CALLED_OFF] > 0 then redis.call('ZREMRANGEBYLEX', K.aside, '[c' .. gkey .. '/', '(c' .. gkey .. '0') end
  unlist(g)
  if g[G_AFTER] > 0 then redis.call('ZREMRANGEBYLEX', K.links, '[f' .. gkey .. ' ', '(f' .. gkey .. '!') end
  redis.call('ZREM', K.agenda, gkey)
  redis.call('ZREM', K.gates, 'g/' .. gkey)
  t[T_GROUPS] = t[T_GROUPS] - 1
  if g[G_ROLLING] > 0 then t[T_ROLLING] = t[T_ROLLING] - 1 end
  groups[gkey] = false
  redis.call('HDEL', K.flow, gkey)
  local gone = t[T_GROUPS] == 0
  if gone then t[T_GATE] = 0 end -- its wake time is removed below; settings may keep the record
  bulk_save()
  if gone then
    for level = 1, 3 do redis.call('ZREM', K.idle, flow_name(level, g[G_TENANT])) end
    redis.call('ZREM', K.gates, 't/' .. g[G_TENANT])
    redis.call('ZREMRANGEBYLEX', K.history, '[' .. g[G_TENANT] .. '/', '(' .. g[G_TENANT] .. '0')
    if t[T_WEIGHT] == 1000 and t[T_RATE] == 0 and t[T_CONC] == 0 then redis.call('HDEL', K.tenants, g[G_TENANT]) end
  end
  return { 0, 0, 0, 1, buried, 0, 0, 0, 0 }
end
local due = group_at
if now < jobs_at then due = math.min(due, jobs_at) end
if dead_left > 0 and now < dead_at then due = math.min(due, dead_at) end
if g[G_FAR_FOLLOWED] > 0 then due = now + 5000000 end
redis.call('ZADD', K.agenda, int(math.max(due, now + 1000000)), gkey)
return answer(0, 0, 0, 0, buried)
