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
  sums = KEYS[25], bell = KEYS[26], history = KEYS[27], busy = KEYS[28], aside = KEYS[29],
  lists = KEYS[30],
}

-- Statuses, as bulk/store names them.
local CREATED, DISPATCHED, RUNNING, AGGREGATING, COMPLETED, FAILED, CANCELLED = 1, 2, 3, 4, 5, 6, 7

-- Whole numbers are written in half the time that lib clock's int takes, for which a long of Redis has to have 64 bits, as
-- fences need it too.
int = function(x) return string.format(x % 1 == 0 and '%d' or '%.0f', x) end

-- set are the settings of the calling process, in the order in which store.go packs them: two strings that end in a zero byte
-- and numbers as big-endian doubles, because words took Redis five times as long to read.
local set
do
  if #ARGV[2] < 185 then error({ err = 'ERR ARGV[2] must have 2 words and 23 numbers, got ' .. #ARGV[2] .. ' bytes' }) end
  local v = { struct.unpack('>ssddddddddddddddddddddddd', ARGV[2]) }
  set = {
    limiter = v[1], policy = v[2], alpha = v[3], strict = v[4], gating = v[5], global = v[6], burst = v[7], per_tenant = v[8],
    congestion = v[9], base = v[10], max = v[11], max_age = v[12], ready_max = v[13], lease = v[14], crashes = v[15],
    quota = v[16], keep_jobs = v[17], keep_groups = v[18], keep_dead = v[19], silence = v[20], keep_stats = v[21],
    adaptive = v[22], unknown_after = v[23], by_time = v[24], window = v[25],
  }
end
local strategy = limiter[set.limiter]
set.by = set.limiter == 'gcra' and 1 or 2

-- shard is the record of the whole shard. v1…v3 are the virtual times (v1 alone unless strict), at and level the global
-- limiter, live_* what operators set over the configuration, hold the time before which no lease ends, beat the last round of a
-- dispatcher, aside counts jobs that are set aside, unserved those of them whose type no process has, as the dispatcher found
-- at checked, mode the order in which the fair queue is kept: 1 fair, 2 fair and strict, 3 by score, ordered when it was last changed; barred counts groups that
-- wait for their type's limit, marked the runs that count towards one; watched counts breakers that have seen a failure, tripped
-- those that are open (lib breakers). limiter says whose state at and level are, as it does in the records of groups and tenants:
-- 1 gcra, 2 fixed_window, 0 of the one that is configured, because an earlier version wrote them.
local SHARD = { 'last', 'adj', 'gseq', 'fence', 'v1', 'v2', 'v3', 'at', 'level', 'rate', 'hold', 'spins', 'starts',
  'queued', 'taken', 'inflight', 'pending', 'open_groups', 'mode', 'beat',
  'aside', 'unserved', 'checked', 'barred', 'marked', 'watched', 'tripped', 'limiter', 'ordered', 'live_global', 'live_tenant', 'found_global', 'live_types' }
SHARD.length = #SHARD - 4 -- without what is only read here
local shard = { last = 0, adj = 0, gseq = 0, fence = 0, v1 = 0, v2 = 0, v3 = 0, at = 0, level = 0, rate = 0, hold = 0, spins = 0,
  starts = 0, queued = 0, taken = 0, inflight = 0, pending = 0 } -- so that it need not grow
local shard_was = redis.call('HMGET', K.state, unpack(SHARD))
do
  local live_global, live_tenant, found_global = unpack(shard_was, SHARD.length + 1, SHARD.length + 3)
  if set.adaptive == 1 and found_global then set.global = tonumber(found_global) end
  set.file_global, set.file_tenant = set.global, set.per_tenant
  if live_global then set.global = tonumber(live_global) end
  if live_tenant then set.per_tenant = tonumber(live_tenant) end
  set.live_types = shard_was[SHARD.length + 4] or ''
  for i = 1, SHARD.length do
    local n = tonumber(shard_was[i] or 0)
    shard[SHARD[i]], shard_was[i] = n, n
  end
end

-- What is in line is in the order of one mode, whatever this process is configured for; lib bulkjobs brings the two together.
local wished = set.policy == 'score' and 3 or 1 + set.strict
if shard.mode == 0 then shard.mode = wished end
set.policy, set.strict = shard.mode == 3 and 'score' or 'fair', shard.mode == 2 and 1 or 0

-- now is the shard's time: Redis's clock, from which jumps back are taken out. What it is ahead by then is given back at a tenth
-- of the time that passes.
local now = clock_now(ARGV[1])
if shard.adj > 0 and now >= shard.last then shard.adj = 0 end
if now + shard.adj < shard.last - 1000000 then
  shard.adj = shard.last - now
elseif shard.adj > 0 then
  shard.adj = shard.adj - math.min(shard.adj, math.max(0, math.floor((now + shard.adj - shard.last) / 10)))
end
now = now + shard.adj
if now > shard.last then shard.last = now end

-- Groups and tenants are packed arrays. The loader replaces G_<field> and T_<field> by the field's number in these lists, so
-- that the fields cost no local variables. Fields are only ever appended: the length of a record is its version. A field
-- that a record of an earlier version lacks reads as 0; what a later version has appended is kept as it is.
--
-- RECORD G: key, id, tenant, type, level, weight, rate, conc, base, held, status, epoch, paused, sealed,
--   total, added, taken, hp, ho, tp, tn, front, ready, inflight, succ, fail, dead, canc, redriven, redrives,
--   tag, queued, gate, why, busy, at, frac, rated, throttles, created, sealed_at, started, finished, touched,
--   dp, dn, reduced, rfence, chunks_open, callback, tries, swept, drop, w_at, w_n, p_at, p_n, of, chunks,
--   largest, widest, aside, kept, outcome_at, inner, share, based,
--   expect, charged, due, uniform, bar, lag, stop_count, stop_share, stopped, tally, most_bad, bad_share,
--   results, shrunk, cleared, gone, called_off, deleted, turn, redriving, limiter
-- RECORD T: name, weight, rate, at, frac, rated, v1, v2, v3, n1, n2, n3, gate, inflight, open, served, groups,
--   jobs, mean, backoff, seen, was, expect, work, u1, u2, u3, conc, full, limiter

-- What a tenant's token sets for a group counts inside the tenant only: inner is then the level (and level is normal), share the
-- weight among tenants, based 1. They are 0 where an operator set level, weight and base, which count among tenants too.

-- A group is paused when as many of its jobs have failed or died as stop_count, or stop_share thousandths of a percent of them
-- (0: never); stopped is then 1, and 2 once it was resumed beyond that: it goes on to its end.

-- Of a group whose aggregate only counts, tally is one more than the outcomes that were counted when they came, and K.sums has
-- the error codes of those that failed under <gkey>#: <code> <n> <code> <n> .... Where tally and the outcomes differ, a process of an
-- earlier version has ended some, and a reducer reads them all. 0: a reducer's work. most_bad is how many of its jobs may fail or die,
-- or where bad_share is 1, how many in a hundred.

-- called_off counts jobs that run and are to be cancelled: K.aside has c<gkey>/<id> of each. deleted is 1 when all that is kept of an
-- ended group goes now. redriving is the short name of its last redrive (0: none): while that is open, no other is made of this group.

-- Work, where time is what is shared, in µs: expect is the mean run time of late, charged what the group's jobs in flight were
-- charged, due what is to be settled of runs that have ended, lag what of it is settled among tenants, and among its tenant's
-- groups is not, as it was the only one in line. work is what a tenant was given in all, u1…u3 its last tags.

-- VISIT_BYTES is how much of jobs' records one step reads, but for the first one, which may be larger.
local VISIT_BYTES = 1048576

-- What was read in this call; finished has the ids of jobs that ended in it, records their new records (key, record, …), over
-- those whose runs are over.
local groups, tenants, finished, records, over = {}, {}, {}, {}, {}
-- tally is about groups whose outcomes are counted as they come: codes has the error codes of this call by group, ends how many groups it
-- has ended as COMPLETED and as FAILED, gone the jobs whose outcome is not kept.
local tally = { codes = {}, ends = { [COMPLETED] = 0, [FAILED] = 0 }, gone = {} }

local function unpack_record(packed, length)
  local r = cmsgpack.unpack(packed)
  for i = #r + 1, length do r[i] = 0 end
  return r
end

-- bulk_group reads a group by its short name; nil where there is none.
local function bulk_group(gkey)
  local g = groups[gkey]
  if g == nil then
    local packed = redis.call('HGET', K.flow, gkey)
    g = packed and unpack_record(packed, G_LENGTH) or false
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
      t = unpack_record(packed, T_LENGTH)
    else
      t = {}
      for i = 1, T_LENGTH do t[i] = 0 end
      t[T_NAME], t[T_WEIGHT] = name, 1000
    end
    tenants[name] = t
  end
  return t
end

-- types has the functions about types of jobs, of which most are in lib bulktypes; uses is how much of the limits of types is used, as far as this call looked: 'use:<type>' in the shard's state has the
-- limiter's at, level and rate, how many runs count towards the concurrency, that concurrency as the last pull knew it, and limiter.
local types = { uses = {}, breakers = {} }

function types.use(kind)
  local u = types.uses[kind]
  if not u then
    local text = redis.call('HGET', K.state, 'use:' .. kind) or '0 0 0 0 0'
    local at, level, rate, running, most, by = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) ?(%d*)')
    u = { at = tonumber(at), level = tonumber(level), rate = tonumber(rate), running = tonumber(running), most = tonumber(most), text = text,
      limiter = tonumber(by) or 0 }
    types.uses[kind] = u
  end
  return u
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

-- in_line says whether a tenant's turn may come: full 1 means that conc of its jobs are in flight, and it is out of line until
-- one of them ends.
local function in_line(t) return t[T_GATE] == 0 and t[T_FULL] == 0 end

-- write gives a list to a command in parts that fit the stack.
local function write(command, key, list)
  for i = 1, #list, 1000 do redis.call(command, key, unpack(list, i, math.min(i + 999, #list))) end
end

-- tally.save adds to the error codes of a group, of which it tells a hundred apart: the others are counted as other.
function tally.save(gkey, new)
  local n, list = {}, {}
  for code, count in string.gmatch(redis.call('HGET', K.sums, gkey .. '#') or '', '(%S+) (%d+)') do
    n[code], list[#list + 1] = tonumber(count), code
  end
  for code, count in pairs(new) do
    if not n[code] and #list >= 100 then code = 'other' end
    if not n[code] then list[#list + 1] = code end
    n[code] = (n[code] or 0) + count
  end
  for i, code in ipairs(list) do list[i] = code .. ' ' .. n[code] end
  redis.call('HSET', K.sums, gkey .. '#', table.concat(list, ' '))
end

-- bulk_save writes back what has changed.
local function bulk_save()
  local line = {}
  for i = 1, SHARD.length do
    local name = SHARD[i]
    if shard[name] ~= shard_was[i] then
      line[#line + 1] = name
      line[#line + 1] = int(shard[name])
    end
  end
  for kind, u in pairs(types.uses) do
    local text = string.format('%.0f %.0f %.0f %d %d', u.at, u.level, u.rate, u.running, u.most) .. (u.limiter > 0 and ' ' .. u.limiter or '')
    if text ~= u.text then line[#line + 1], line[#line + 2] = 'use:' .. kind, text end
  end
  for name, b in pairs(types.breakers) do
    if b and b.changed then
      b.changed = nil
      line[#line + 1], line[#line + 2] = 'brk:' .. name, cmsgpack.pack(b)
    end
  end
  if line[1] then redis.call('HSET', K.state, unpack(line)) end
  for gkey, new in pairs(tally.codes) do tally.save(gkey, new) end
  write('HSET', K.jobs, records)
  write('HDEL', K.jobs, tally.gone)
  write('HDEL', K.runs, over)
  local packed, n = {}, 0
  for gkey, g in pairs(groups) do
    if g then
      if finished[gkey] then g[G_DP], g[G_DN] = append(K.done, gkey, g[G_DP], g[G_DN], finished[gkey]) end
      packed[n + 1], packed[n + 2] = gkey, cmsgpack.pack(g)
      n = n + 2
    end
  end
  write('HSET', K.flow, packed)
  packed, n = {}, 0
  for name, t in pairs(tenants) do
    packed[n + 1], packed[n + 2] = name, cmsgpack.pack(t)
    n = n + 2
  end
  write('HSET', K.tenants, packed)
end

-- bell wakes one process that waits for work.
local function bell()
  if redis.call('LLEN', K.bell) == 0 then redis.call('LPUSH', K.bell, 1) end
end

local function vname(level) return set.strict == 1 and 'v' .. level or 'v1' end
local function flow_name(level, tenant) return fair.PREFIX[level] .. tenant end

-- inner_weight returns a group's weight among its tenant's groups of one level.
local function inner_weight(g)
  return g[G_INNER] > 0 and g[G_WEIGHT] * fair.LEVELS[g[G_INNER]] / fair.LEVELS[2] or g[G_WEIGHT]
end

-- line_of is a group's member among its tenant's groups: by level and tenant, then by tag. lined keeps the last one, as a turn looks at
-- it and then takes it out.
local lined = {}
local function line_of(g)
  local tag, level = g[G_TAG], g[G_LEVEL]
  if lined.g ~= g or lined.tag ~= tag or lined.level ~= level then
    lined.g, lined.tag, lined.level = g, tag, level
    lined.line = fair.PREFIX[level] .. g[G_TENANT] .. '/' .. string.format('%020d', tag) .. '/' .. g[G_KEY]
  end
  return lined.line
end

-- raise keeps a group's largest record: of those submitted (G_LARGEST) or of outcomes (G_WIDEST). 0 means unknown, which holds
-- for a group that an earlier version began; none tells whether this is the group's first.
local function raise(g, field, none, bytes)
  if bytes > g[field] and (none or g[field] > 0) then g[field] = bytes end
end

local function ended(g) return g[G_SUCC] + g[G_FAIL] + g[G_DEAD] + g[G_CANC] end

-- runnable says whether a job of the group may start, the limits aside.
local function runnable(g)
  return g[G_PAUSED] == 0 and g[G_GATE] == 0 and g[G_BAR] == 0 and g[G_STATUS] <= RUNNING and (g[G_SEALED] == 1 or g[G_HELD] == 0)
    and (g[G_FRONT] > 0 or g[G_TAKEN] < g[G_ADDED]) and (g[G_CONC] == 0 or g[G_INFLIGHT] + g[G_READY] < g[G_CONC])
end

-- unplace takes a group out of the fair queue.
local function unplace(g)
  if g[G_QUEUED] == 0 then return end
  g[G_QUEUED] = 0
  shard.queued = shard.queued - 1
  if set.policy == 'score' then
    redis.call('ZREM', K.levels[g[G_LEVEL]], g[G_KEY])
    return
  end
  local t = bulk_tenant(g[G_TENANT])
  redis.call('ZREM', K.lines, line_of(g))
  local n = T_N1 - 1 + g[G_LEVEL]
  t[n] = t[n] - 1
  if t[n] == 0 and in_line(t) then
    fair.leave(K.levels[g[G_LEVEL]], K.idle, shard[vname(g[G_LEVEL])], flow_name(g[G_LEVEL], g[G_TENANT]))
  end
end

-- place gives a group the place in the fair queue that its state deserves: one, or none.
local function place(g)
  if not runnable(g) then
    unplace(g)
    return
  end
  if set.policy == 'score' then
    if g[G_QUEUED] == 0 then shard.queued = shard.queued + 1 end
    g[G_QUEUED] = 1
    local base = g[G_BASED] == 1 and 0 or g[G_BASE]
    redis.call('ZADD', K.levels[g[G_LEVEL]], int(fair.score(math.floor(now / 1000), base, set.alpha, g[G_TOTAL], ended(g))), g[G_KEY])
    return
  end
  if g[G_QUEUED] == 1 then return end
  local t = bulk_tenant(g[G_TENANT])
  g[G_QUEUED] = 1
  shard.queued = shard.queued + 1
  local n = T_N1 - 1 + g[G_LEVEL]
  g[G_TAG] = math.max(g[G_TAG], t[T_V1 - 1 + g[G_LEVEL]])
  redis.call('ZADD', K.lines, 0, line_of(g))
  t[n] = t[n] + 1
  if t[n] == 1 and in_line(t) then
    fair.enter(K.levels[g[G_LEVEL]], K.idle, shard[vname(g[G_LEVEL])], flow_name(g[G_LEVEL], g[G_TENANT]))
  end
end

-- types.bar keeps a group whose jobs are all of one type out until the type's limits let one start. While it is barred, G_BAR is its
-- member of K.aside: w<type> and its place in line. Among the barred groups of a type, the first of each tenant is looked at.
function types.bar(g, kind)
  unplace(g)
  g[G_BAR] = 'w' .. kind .. ' ' .. line_of(g)
  shard.barred = shard.barred + 1
  redis.call('ZADD', K.aside, 0, g[G_BAR])
end

function types.unbar(g)
  if g[G_BAR] == 0 then return end
  redis.call('ZREM', K.aside, g[G_BAR])
  g[G_BAR], shard.barred = 0, shard.barred - 1
end

-- gate_group keeps a group out until a time; a later call may only prolong it. busy is what its downstream asked for: no change
-- of rate shortens that.
local function gate_group(g, till, why)
  if why == 'busy' then g[G_BUSY] = math.max(g[G_BUSY], till) end
  if g[G_GATE] >= till then return end
  g[G_GATE], g[G_WHY] = till, why
  shard.spins = shard.spins + 1
  redis.call('ZADD', K.gates, int(till), 'g/' .. g[G_KEY])
  unplace(g)
end

-- open_group opens a group's gate, or leaves it for as long as its downstream asked.
local function open_group(g)
  if g[G_GATE] == 0 then return end
  if g[G_BUSY] > now then
    g[G_GATE], g[G_WHY] = g[G_BUSY], 'busy'
    redis.call('ZADD', K.gates, int(g[G_BUSY]), 'g/' .. g[G_KEY])
    return
  end
  g[G_GATE], g[G_WHY], g[G_BUSY] = 0, '', 0
  redis.call('ZREM', K.gates, 'g/' .. g[G_KEY])
  place(g)
end

-- leave_line and enter_line take all groups of a tenant out of the fair queue among tenants, and back.
local function leave_line(t)
  for level = 1, 3 do
    if t[T_N1 - 1 + level] > 0 then fair.leave(K.levels[level], K.idle, shard[vname(level)], flow_name(level, t[T_NAME])) end
  end
end

local function enter_line(t)
  for level = 1, 3 do
    if t[T_N1 - 1 + level] > 0 then fair.enter(K.levels[level], K.idle, shard[vname(level)], flow_name(level, t[T_NAME])) end
  end
end

-- gate_tenant keeps all groups of a tenant out until a time.
local function gate_tenant(t, till)
  if in_line(t) then leave_line(t) end
  t[T_GATE] = till
  shard.spins = shard.spins + 1
  redis.call('ZADD', K.gates, int(till), 't/' .. t[T_NAME])
end

local function open_tenant(t)
  if t[T_GATE] == 0 then return end
  t[T_GATE] = 0
  redis.call('ZREM', K.gates, 't/' .. t[T_NAME])
  if in_line(t) then enter_line(t) end
end

-- fill takes a tenant out of line when its concurrency is used up, and brings it back when it is not.
local function fill(t)
  local full = t[T_CONC] > 0 and t[T_INFLIGHT] >= t[T_CONC] and 1 or 0
  if full == t[T_FULL] then return end
  if full == 1 then
    leave_line(t)
    t[T_FULL] = 1
  else
    t[T_FULL] = 0
    if in_line(t) then enter_line(t) end
    if shard.queued > 0 then bell() end
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
  local was = redis.call('ZSCORE', K.agenda, g[G_KEY])
  if not was or tonumber(was) > at then redis.call('ZADD', K.agenda, int(at), g[G_KEY]) end
end

-- place_in_lists returns a group's two places in the lists, by its tenant and status and by its status alone: the status's
-- digit, the time of its creation (7 bytes, big-endian) and its short name stand behind t<tenant>, a zero byte, and behind s.
local function place_in_lists(g)
  local tail = g[G_STATUS] .. struct.pack('>I7', g[G_CREATED]) .. g[G_KEY]
  return 't' .. g[G_TENANT] .. '\0' .. tail, 's' .. tail
end

local function enlist(g)
  local of_tenant, of_all = place_in_lists(g)
  redis.call('ZADD', K.lists, 0, of_tenant, 0, of_all)
end

local function unlist(g) redis.call('ZREM', K.lists, place_in_lists(g)) end

-- move changes a group's status.
local function move(g, status)
  if status > RUNNING then types.unbar(g) end
  unlist(g)
  g[G_STATUS], g[G_EPOCH] = status, g[G_EPOCH] + 1
  enlist(g)
end

-- silent_from is when the silence of an unsealed group is long enough to seal it: no job came, and no outcome. A redrive takes a step in
-- moments, and one that nobody has gone on with for a minute runs what it has; the other jobs stay where they were.
local function silent_from(g)
  return math.max(g[G_TOUCHED], g[G_OUTCOME_AT]) + (g[G_OF] == 1 and math.min(set.silence, 60000000) or set.silence)
end

-- is_open reports whether a redrive has not taken all its jobs yet.
local function is_open(g) return g and g[G_OF] == 1 and g[G_SEALED] == 0 and g[G_STATUS] == CREATED end

-- retention returns when an ended group's outcomes go, its dead letters, and the group itself; and how many dead letters are left, with
-- the failed jobs whose payload is kept.
local function retention(g)
  local left = g[G_DEAD] - g[G_REDRIVEN] + g[G_KEPT]
  if g[G_DELETED] == 1 then return now, now, now, left end
  local jobs_at, dead_at = g[G_FINISHED] + set.keep_jobs, g[G_FINISHED] + set.keep_dead
  return jobs_at, dead_at, math.max(g[G_FINISHED] + set.keep_groups, jobs_at, left > 0 and dead_at or 0), left
end

-- tally.complete says whether all outcomes of a group were counted when they came. Those of a group that does not keep them are not
-- reduced again: what an earlier version has ended is in its numbers, and only its error codes are missing.
function tally.complete(g) return g[G_TALLY] == ended(g) + 1 or (g[G_TALLY] > 0 and g[G_RESULTS] > 0) end

-- tally.conclude ends a group whose outcomes were all counted.
function tally.conclude(g)
  local bad = g[G_FAIL] + g[G_DEAD]
  local status = (g[G_BAD_SHARE] == 1 and bad * 100 > g[G_MOST_BAD] * g[G_TOTAL] or g[G_BAD_SHARE] == 0 and bad > g[G_MOST_BAD]) and FAILED or COMPLETED
  move(g, status)
  tally.ends[status] = tally.ends[status] + 1
  g[G_FINISHED], g[G_REDUCED] = now, ended(g)
  shard.open_groups = shard.open_groups - 1
  redis.call('HDEL', K.sums, g[G_KEY]) -- what a reducer of an earlier version began
  redis.call('ZADD', K.agenda, int((g[G_CALLBACK] == 1 or g[G_SHRUNK] > 0) and now or now + math.min(set.keep_jobs, set.keep_groups, set.keep_dead)), g[G_KEY])
end

-- settle looks whether every job of a group has its outcome.
local function settle(g)
  if g[G_SEALED] == 1 and (g[G_STATUS] == DISPATCHED or g[G_STATUS] == RUNNING) and ended(g) == g[G_TOTAL] then
    if tally.complete(g) then
      tally.conclude(g)
      return
    end
    move(g, AGGREGATING)
    plan(g, now)
  elseif g[G_STATUS] == CANCELLED and g[G_INFLIGHT] == 0 then
    plan(g, now)
  end
end

-- seal ends the submission to a group.
local function seal(g)
  g[G_SEALED], g[G_SEALED_AT] = 1, now
  move(g, g[G_STARTED] > 0 and RUNNING or DISPATCHED)
  redis.call('ZREM', K.agenda, g[G_KEY])
  settle(g)
end

-- tenant_open keeps the count of jobs that a tenant has to do, and the set of the tenants that have any.
local function tenant_open(t, by)
  local before = t[T_OPEN]
  t[T_OPEN] = before + by
  if before == 0 and t[T_OPEN] > 0 then
    redis.call('ZADD', K.busy, 0, t[T_NAME])
    t[T_WAS], t[T_SEEN] = t[T_WORK], 0
  elseif before > 0 and t[T_OPEN] == 0 then
    redis.call('ZREM', K.busy, t[T_NAME])
    t[T_JOBS], t[T_MEAN], t[T_BACKOFF] = 0, 0, 0
  end
end
