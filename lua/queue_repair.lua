#!lua flags=allow-oom
-- queue_repair: restores places in the fair queue, wake times and housekeeping times of groups and tenants that contradict their records.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, kind (group, tenant, line: members of lines, flow: members of levels), name, ...
-- RETURNS: name and what was restored (gate, queue, turn, line, busy, agenda, list), for each repair
-- INVARIANT: no count of jobs and no job changes; a second call finds nothing to do.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs

local reply = {}
local function mended(name, what)
  reply[#reply + 1], reply[#reply + 2] = name, what
end

local function repair_tenant(name)
  if redis.call('HEXISTS', K.tenants, name) == 0 then return end
  local t = bulk_tenant(name)
  if t[T_GATE] > 0 and not redis.call('ZSCORE', K.gates, 't/' .. name) then
    open_tenant(t) -- a limit that is still spent closes the gate again at the next pull
    mended(name, 'gate')
  end
  if (redis.call('ZSCORE', K.busy, name) and true or false) ~= (t[T_OPEN] > 0) then
    if t[T_OPEN] > 0 then redis.call('ZADD', K.busy, 0, name) else redis.call('ZREM', K.busy, name) end
    mended(name, 'busy')
  end
  if set.policy == 'score' then return end
  for level = 1, 3 do
    local flow = flow_name(level, name)
    local n = redis.call('ZLEXCOUNT', K.lines, '[' .. flow .. '/', '(' .. flow .. '0')
    if t[T_N1 - 1 + level] ~= n then
      t[T_N1 - 1 + level] = n
      mended(name, 'queue')
    end
    local turn = redis.call('ZSCORE', K.levels[level], flow) and true or false
    if turn ~= (n > 0 and may_queue(t)) then
      if turn then
        fair.leave(K.levels[level], K.idle, shard[vname(level)], flow)
      else
        fair.enter(K.levels[level], K.idle, shard[vname(level)], flow)
      end
      mended(name, 'turn')
    end
  end
end

local function repair_group(gkey)
  local g = bulk_group(gkey)
  if not g then return end
  local wakes = redis.call('ZSCORE', K.gates, 'g/' .. gkey)
  if g[G_GATE] > 0 and not wakes then
    redis.call('ZADD', K.gates, int(g[G_GATE]), 'g/' .. gkey)
    mended(g[G_ID], 'gate')
  elseif wakes and g[G_GATE] == 0 then
    redis.call('ZREM', K.gates, 'g/' .. gkey)
    mended(g[G_ID], 'gate')
  end
  if g[G_BAR] ~= 0 and g[G_STATUS] > RUNNING then
    types.unbar(g)
    mended(g[G_ID], 'gate')
  elseif g[G_BAR] ~= 0 and not redis.call('ZSCORE', K.aside, g[G_BAR]) then
    g[G_BAR], shard.barred = 0, shard.barred - 1
    mended(g[G_ID], 'gate')
  end
  local by = g[G_STATUS] >= AGGREGATING and now or tend_by(g)
  if by and not redis.call('ZSCORE', K.agenda, gkey) then
    plan_tend(g, by)
    mended(g[G_ID], 'agenda')
  end
  local of_tenant, of_all = place_in_lists(g)
  if not redis.call('ZSCORE', K.lists, of_tenant) or not redis.call('ZSCORE', K.lists, of_all) then
    local status = g[G_STATUS]
    for other = CREATED, CANCELLED do
      g[G_STATUS] = other
      unlist(g)
    end
    g[G_STATUS] = status
    enlist(g)
    mended(g[G_ID], 'list')
  end
  for _, place in ipairs(labels.places(g)) do
    if redis.call('ZADD', K.lists, 0, place) == 1 then mended(g[G_ID], 'list') end
  end
  local before = g[G_QUEUED]
  if set.policy == 'fair' and before == 1 and not redis.call('ZSCORE', K.lines, queue_member(g)) then
    redis.call('ZADD', K.lines, 0, queue_member(g))
    mended(g[G_ID], 'queue')
  elseif set.policy == 'score' and before == 1 and not redis.call('ZSCORE', K.levels[g[G_LEVEL]], gkey) then
    requeue(g)
    mended(g[G_ID], 'queue')
  end
  requeue(g)
  if g[G_QUEUED] ~= before then mended(g[G_ID], 'queue') end
end

-- repair_line removes a member of lines whose group is not queued there.
local function repair_line(member)
  local g = bulk_group(string.match(member, '([^/]+)$') or '')
  if set.policy == 'fair' and g and g[G_QUEUED] == 1 and queue_member(g) == member then return end
  redis.call('ZREM', K.lines, member)
  mended(member, 'line')
end

-- repair_turn removes a member of levels without a queue: a flow without groups, or by score a group that is not queued at that level.
local function repair_turn(member)
  for level = 1, 3 do
    if redis.call('ZSCORE', K.levels[level], member) then
      local g = set.policy == 'score' and bulk_group(member)
      local right = g and g[G_QUEUED] == 1 and g[G_LEVEL] == level
        or set.policy == 'fair' and redis.call('ZLEXCOUNT', K.lines, '[' .. member .. '/', '(' .. member .. '0') > 0
      if not right then
        redis.call('ZREM', K.levels[level], member)
        mended(member, 'turn')
      end
    end
  end
end

local repairs = { group = repair_group, line = repair_line, flow = repair_turn, tenant = repair_tenant }
local queued = shard.queued
for i = 4, #ARGV do
  repairs[ARGV[3]](ARGV[i])
end
if shard.queued > queued or #reply > 0 then wake_worker() end
bulk_save()
return reply
