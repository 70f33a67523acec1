-- bulk: what the scripts of the bulk engine share: keys, settings, the records
-- of shard, groups and tenants, and a group's place in the fair queue.
--
-- A group goes by a short name of its own (gkey: base 36, no slash), so that the
-- name of a job in the store, gkey/id, stays short. Records are read once a
-- script, changed in Lua and written back by bulk_save.

local K = {
  state = KEYS[1], names = KEYS[2], groups = KEYS[3], flow = KEYS[4], index = KEYS[5], tenants = KEYS[6],
  levels = { KEYS[7], KEYS[8], KEYS[9] }, lines = KEYS[10], idle = KEYS[11], gates = KEYS[12],
  jobs = KEYS[13], runs = KEYS[14], order = KEYS[15], front = KEYS[16], ready = KEYS[17], leases = KEYS[18],
  waiting = KEYS[19], refused = KEYS[20], done = KEYS[21], dead = KEYS[22], chunks = KEYS[23], agenda = KEYS[24],
  sums = KEYS[25], bell = KEYS[26], history = KEYS[27], busy = KEYS[28],
}

-- Statuses, as bulk/store names them.
local CREATED, DISPATCHED, RUNNING, AGGREGATING, COMPLETED, FAILED, CANCELLED = 1, 2, 3, 4, 5, 6, 7

-- set are the settings of the calling process, in the order in which settings.go writes them.
local set = {}
do
  local names = { 'limiter', 'policy', 'alpha', 'strict', 'gating', 'global', 'burst', 'per_tenant', 'congestion', 'base', 'max',
    'max_age', 'ready_max', 'lease', 'retries', 'crashes', 'quota', 'keep_jobs', 'keep_groups', 'keep_dead', 'silence', 'keep_stats' }
  local i = 0
  for word in string.gmatch(ARGV[2], '%S+') do
    i = i + 1
    if i > 2 then word = tonumber(word) end
    set[names[i]] = word
  end
  if i ~= #names then error({ err = 'ERR ARGV[2] must have ' .. #names .. ' settings, got ' .. i }) end
end
local strategy = limiter[set.limiter]

-- shard is the record of the whole shard. v1…v3 are the virtual times (v1 alone unless strict), at and level the global
-- limiter, live_* what operators set over the configuration, hold the time before which no lease ends.
local SHARD = { 'last', 'adj', 'gseq', 'fence', 'v1', 'v2', 'v3', 'at', 'level', 'rate', 'hold', 'spins', 'starts',
  'queued', 'taken', 'inflight', 'pending', 'open_groups' }
local shard, shard_was = {}, {}
do
  local got = redis.call('HMGET', K.state, unpack(SHARD))
  for i, name in ipairs(SHARD) do
    shard[name] = tonumber(got[i] or 0)
    shard_was[name] = shard[name]
  end
  local live = redis.call('HMGET', K.state, 'live_global', 'live_tenant')
  set.file_global, set.file_tenant = set.global, set.per_tenant
  if live[1] then set.global = tonumber(live[1]) end
  if live[2] then set.per_tenant = tonumber(live[2]) end
end

-- now is the shard's time: Redis's clock, from which jumps back are taken out.
local now = clock_now(ARGV[1])
if shard.adj > 0 and now >= shard.last then shard.adj = 0 end
if now + shard.adj < shard.last - 1000000 then shard.adj = shard.last - now end
now = now + shard.adj
if now > shard.last then shard.last = now end

local GROUP = { 'id', 'tenant', 'type', 'level', 'weight', 'rate', 'conc', 'base', 'held', 'status', 'epoch', 'paused', 'sealed',
  'total', 'added', 'taken', 'hp', 'ho', 'tp', 'tn', 'front', 'ready', 'inflight', 'succ', 'fail', 'dead', 'canc', 'redriven', 'redrives',
  'tag', 'queued', 'gate', 'why', 'at', 'frac', 'rated', 'throttles', 'created', 'sealed_at', 'started', 'finished', 'touched',
  'dp', 'dn', 'reduced', 'rfence', 'chunks_open', 'callback', 'tries', 'swept', 'drop', 'w_at', 'w_n', 'p_at', 'p_n' }
local TENANT = { 'weight', 'rate', 'at', 'frac', 'rated', 'v1', 'v2', 'v3', 'n1', 'n2', 'n3', 'gate', 'inflight', 'open', 'served', 'groups',
  'jobs', 'mean', 'backoff', 'seen', 'was' }

local groups, tenants = {}, {}

local function record(names, packed)
  local r, list = {}, cmsgpack.unpack(packed)
  for i, name in ipairs(names) do r[name] = list[i] end
  return r
end

local function pack(names, r)
  local list = {}
  for i, name in ipairs(names) do list[i] = r[name] end
  return cmsgpack.pack(list)
end

-- bulk_group reads a group by its short name; nil where there is none.
local function bulk_group(gkey)
  local g = groups[gkey]
  if g == nil then
    local packed = redis.call('HGET', K.flow, gkey)
    g = packed and record(GROUP, packed) or false
    if g then g.key, g.ended_ids = gkey, {} end
    groups[gkey] = g
  end
  return g or nil
end

-- bulk_tenant reads a tenant, a new one where there is none.
local function bulk_tenant(name)
  local t = tenants[name]
  if not t then
    local packed = redis.call('HGET', K.tenants, name)
    if packed then
      t = record(TENANT, packed)
    else
      t = {}
      for _, f in ipairs(TENANT) do t[f] = 0 end
      t.weight = 1000
    end
    t.name = name
    tenants[name] = t
  end
  return t
end

-- append writes lines to the last pages of a paged list: page number, entries in it.
local PAGE = 100
local function append(key, gkey, page, count, ids)
  local i = 1
  while i <= #ids do
    if count >= PAGE then page, count = page + 1, 0 end
    local part = math.min(#ids - i + 1, PAGE - count)
    local field = gkey .. ':' .. int(page)
    local text = count > 0 and redis.call('HGET', key, field) or ''
    redis.call('HSET', key, field, (text or '') .. table.concat(ids, '\n', i, i + part - 1) .. '\n')
    i, count = i + part, count + part
  end
  return page, count
end

-- bulk_save writes back what has changed.
local function bulk_save()
  local line = {}
  for _, name in ipairs(SHARD) do
    if shard[name] ~= shard_was[name] then
      line[#line + 1] = name
      line[#line + 1] = int(shard[name])
    end
  end
  if line[1] then redis.call('HSET', K.state, unpack(line)) end
  for gkey, g in pairs(groups) do
    if g then
      if g.ended_ids[1] then g.dp, g.dn = append(K.done, gkey, g.dp, g.dn, g.ended_ids) end
      redis.call('HSET', K.flow, gkey, pack(GROUP, g))
    end
  end
  for name, t in pairs(tenants) do redis.call('HSET', K.tenants, name, pack(TENANT, t)) end
end

-- bell wakes one process that waits for work.
local function bell()
  if redis.call('LLEN', K.bell) == 0 then redis.call('LPUSH', K.bell, 1) end
end

local function vname(level) return set.strict == 1 and 'v' .. level or 'v1' end
local function flow_name(g_or_level, tenant) return g_or_level .. '/' .. tenant end

-- line_of is a group's member among its tenant's groups: by level and tenant, then by tag.
local function line_of(g)
  return g.level .. '/' .. g.tenant .. '/' .. string.format('%016.0f', g.tag) .. '/' .. g.key
end

local function ended(g) return g.succ + g.fail + g.dead + g.canc end

-- runnable says whether a job of the group may start, the limits aside.
local function runnable(g)
  return g.paused == 0 and g.gate == 0 and g.status <= RUNNING and (g.sealed == 1 or g.held == 0)
    and (g.front > 0 or g.taken < g.added) and (g.conc == 0 or g.inflight + g.ready < g.conc)
end

-- unplace takes a group out of the fair queue.
local function unplace(g)
  if g.queued == 0 then return end
  g.queued = 0
  shard.queued = shard.queued - 1
  if set.policy == 'score' then
    redis.call('ZREM', K.levels[g.level], g.key)
    return
  end
  local t = bulk_tenant(g.tenant)
  redis.call('ZREM', K.lines, line_of(g))
  local n = 'n' .. g.level
  t[n] = t[n] - 1
  if t[n] == 0 and t.gate == 0 then
    fair.leave(K.levels[g.level], K.idle, shard[vname(g.level)], flow_name(g.level, g.tenant))
  end
end

-- place gives a group the place in the fair queue that its state deserves: one, or none.
local function place(g)
  if not runnable(g) then
    unplace(g)
    return
  end
  if set.policy == 'score' then
    if g.queued == 0 then shard.queued = shard.queued + 1 end
    g.queued = 1
    redis.call('ZADD', K.levels[g.level], int(fair.score(math.floor(now / 1000), g.base, set.alpha, g.total, ended(g))), g.key)
    return
  end
  if g.queued == 1 then return end
  local t = bulk_tenant(g.tenant)
  g.queued = 1
  shard.queued = shard.queued + 1
  local n = 'n' .. g.level
  g.tag = math.max(g.tag, t['v' .. g.level])
  redis.call('ZADD', K.lines, 0, line_of(g))
  t[n] = t[n] + 1
  if t[n] == 1 and t.gate == 0 then
    fair.enter(K.levels[g.level], K.idle, shard[vname(g.level)], flow_name(g.level, g.tenant))
  end
end

-- gate_group keeps a group out until a time; a later call may only prolong it.
local function gate_group(g, till, why)
  if g.gate >= till then return end
  g.gate, g.why = till, why
  shard.spins = shard.spins + 1
  redis.call('ZADD', K.gates, int(till), 'g/' .. g.key)
  unplace(g)
end

local function open_group(g)
  if g.gate == 0 then return end
  g.gate, g.why = 0, ''
  redis.call('ZREM', K.gates, 'g/' .. g.key)
  place(g)
end

-- gate_tenant keeps all groups of a tenant out until a time.
local function gate_tenant(t, till)
  if t.gate == 0 then
    for level = 1, 3 do
      if t['n' .. level] > 0 then
        fair.leave(K.levels[level], K.idle, shard[vname(level)], flow_name(level, t.name))
      end
    end
  end
  t.gate = till
  shard.spins = shard.spins + 1
  redis.call('ZADD', K.gates, int(till), 't/' .. t.name)
end

local function open_tenant(t)
  if t.gate == 0 then return end
  t.gate = 0
  redis.call('ZREM', K.gates, 't/' .. t.name)
  for level = 1, 3 do
    if t['n' .. level] > 0 then
      fair.enter(K.levels[level], K.idle, shard[vname(level)], flow_name(level, t.name))
    end
  end
end

-- open_gates opens up to n gates whose time has come and says how many.
local function open_gates(n)
  local due = redis.call('ZRANGEBYSCORE', K.gates, '-inf', int(now), 'LIMIT', 0, n)
  for _, gate in ipairs(due) do
    local name = string.sub(gate, 3)
    if string.sub(gate, 1, 1) == 't' then
      open_tenant(bulk_tenant(name))
    else
      local g = bulk_group(name)
      if g then open_group(g) else redis.call('ZREM', K.gates, gate) end
    end
  end
  return #due
end

-- plan notes that a group has housekeeping to do at a time, at the latest.
local function plan(g, at)
  local was = redis.call('ZSCORE', K.agenda, g.key)
  if not was or tonumber(was) > at then redis.call('ZADD', K.agenda, int(at), g.key) end
end

-- move changes a group's status.
local function move(g, status)
  g.status, g.epoch = status, g.epoch + 1
end

-- settle looks whether every job of a group has its outcome.
local function settle(g)
  if g.sealed == 1 and (g.status == DISPATCHED or g.status == RUNNING) and ended(g) == g.total then
    move(g, AGGREGATING)
    plan(g, now)
  elseif g.status == CANCELLED and g.inflight == 0 then
    plan(g, now)
  end
end

-- tenant_open keeps the count of jobs that a tenant has to do, and the set of the tenants that have any.
local function tenant_open(t, by)
  local before = t.open
  t.open = before + by
  if before == 0 and t.open > 0 then
    redis.call('ZADD', K.busy, 0, t.name)
    t.was, t.seen = t.served, 0
  elseif before > 0 and t.open == 0 then
    redis.call('ZREM', K.busy, t.name)
    t.jobs, t.mean, t.backoff = 0, 0, 0
  end
end
