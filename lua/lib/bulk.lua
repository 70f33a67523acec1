-- bulk: what the scripts of the bulk engine share: keys, settings, and the records of shard, groups and tenants.
--
-- A group has a short name (gkey: base 36, no slash), so that the name of a job in the store, gkey/id, stays short. Records are read once a
-- script, changed in Lua and written back by bulk_save.

local K = {
  state = KEYS[1], names = KEYS[2], groups = KEYS[3], flow = KEYS[4], index = KEYS[5], tenants = KEYS[6],
  levels = { KEYS[7], KEYS[8], KEYS[9] }, lines = KEYS[10], idle = KEYS[11], gates = KEYS[12],
  jobs = KEYS[13], runs = KEYS[14], order = KEYS[15], front = KEYS[16], ready = KEYS[17], leases = KEYS[18],
  waiting = KEYS[19], refused = KEYS[20], done = KEYS[21], dead = KEYS[22], chunks = KEYS[23], agenda = KEYS[24],
  sums = KEYS[25], bell = KEYS[26], history = KEYS[27], busy = KEYS[28], aside = KEYS[29],
  lists = KEYS[30], uniques = KEYS[31], lapses = KEYS[32], links = KEYS[33], batches = KEYS[34],
}

-- Statuses, as bulk/store names them.
local CREATED, DISPATCHED, RUNNING, AGGREGATING, COMPLETED, FAILED, CANCELLED = 1, 2, 3, 4, 5, 6, 7

-- int formats a whole number in half the time of lib clock's int. It requires a Redis whose long has 64 bits, as fences do.
int = function(x) return string.format(x % 1 == 0 and '%d' or '%.0f', x) end

-- set has the settings of the calling process, in the order in which the Go package packs them: two strings that end in a zero byte, and
-- numbers as big-endian doubles, because words took Redis five times as long to read.
local set
do
  if #ARGV[2] < 201 then error({ err = 'ERR ARGV[2] must have 2 words and 25 numbers, got ' .. #ARGV[2] .. ' bytes' }) end
  local v = { struct.unpack('>ssddddddddddddddddddddddddd', ARGV[2]) }
  set = {
    limiter = v[1], policy = v[2], alpha = v[3], strict = v[4], gating = v[5], global = v[6], burst = v[7], per_tenant = v[8],
    congestion = v[9], base = v[10], max = v[11], max_age = v[12], ready_max = v[13], lease = v[14], crashes = v[15],
    quota = v[16], keep_jobs = v[17], keep_groups = v[18], keep_dead = v[19], silence = v[20], keep_stats = v[21],
    adaptive = v[22], unknown_after = v[23], by_time = v[24], window = v[25],
    shards = v[26], number = v[27],
  }
end
local strategy = limiter[set.limiter]
set.by = set.limiter == 'gcra' and 1 or 2

-- parts divides the limits that hold over all shards. A shard has a lease of each, from rates_lend, and the leases together are never more than
-- the limit. Without one it has its fixed part. The field lease of the shard's state has the lease of the global limit: rate, burst, the
-- time at which all leases of the shard end, and after how long beyond that the shard has its fixed part. In between it has no more
-- than either. 'share:<type>' has the lease of a type's limits: rate, burst, concurrency, and the limits of which they are a part.
local parts, now = { till = 0, after = 4000000, leases = {} }, 0

-- parts.count returns the part of a number that this shard has, or that the part number of n parts has.
function parts.count(whole, number, n)
  number, n = number or set.number, n or set.shards
  if n == 1 then return whole end
  return math.floor(whole / n) + (number < whole % n and 1 or 0)
end

-- parts.rate returns this shard's part of a rate, and of its burst, or those of the part number of n parts. A burst of less than a job for each
-- shard is that of the first shards alone: the others have no part, a rate and a burst of 0.
function parts.rate(rate, burst, number, n)
  number, n = number or set.number, n or set.shards
  if n == 1 or rate == 0 then return rate, burst end
  burst = default_burst(rate, burst)
  local among = math.min(n, math.floor(burst / 1000))
  if number >= among then return 0, 0 end
  return math.floor(rate / among), math.floor(burst / among)
end

-- parts.at_most returns the rate and burst that a lease grants now: its own, or once its time is over, no more than the fixed part.
function parts.at_most(rate, burst, of_rate, of_burst)
  if now < parts.till then return rate, burst end
  local own, own_burst = parts.rate(of_rate, of_burst)
  return math.min(rate, own), math.min(burst, own_burst)
end

-- parts.read reads the shard's leases, and sets the global limit to its own. parts.phase is 0 while the leases last, 1 after their end, and 2 when
-- the shard has its fixed part; parts.steps has rate, burst and beginning of each. parts.lent and parts.was are the burst and the phase of the
-- global limiter's state.
function parts.read()
  local text, lent = unpack(redis.call('HMGET', K.state, 'lease', 'lent'))
  local rate, burst, till, after = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+)$')
  local burst_was, was = string.match(lent or '', '^(%d+) (%d)$')
  local own, own_burst = parts.rate(set.global, set.burst)
  parts.lent, parts.was, parts.phase, parts.steps = tonumber(burst_was or 0), tonumber(was or 2), 2, { [2] = { own, own_burst, 0 } }
  if rate then
    rate, burst, parts.till = tonumber(rate), tonumber(burst), tonumber(till)
    parts.after = tonumber(after)
    local free = parts.till + parts.after
    parts.steps = { [0] = { rate, burst, 0 }, { math.min(rate, own), math.min(burst, own_burst), parts.till }, { own, own_burst, free } }
    parts.phase = now < parts.till and 0 or now < free and 1 or 2
  end
  set.whole, set.whole_burst = set.global, default_burst(set.global, set.burst)
  set.global, set.burst = unpack(parts.steps[parts.phase])
end

-- parts.lent_to reports whether the shard has a lease of a tenant's own limits as they are now.
function parts.lent_to(t)
  return t[T_LENT] == 1 and t[T_OF_RATE] == t[T_RATE] and t[T_OF_CONC] == t[T_CONC]
end

-- parts.tenant returns the rate of a tenant in this shard and its burst, and whether there is a limit: otherwise a rate of 0 starts nothing.
function parts.tenant(t)
  local rate = t[T_RATE] > 0 and t[T_RATE] or set.per_tenant
  if set.shards == 1 or rate == 0 then return rate, set.file_burst, rate > 0 end
  if t[T_RATE] > 0 and parts.lent_to(t) then
    local own, own_burst = parts.at_most(t[T_L_RATE], t[T_L_BURST], rate, set.file_burst)
    return own, own_burst, true
  end
  if t[T_RATE] > 0 and t[T_LENT] == 1 and parts.phase < 2 then return 0, 0, true end
  local own, own_burst = parts.rate(rate, set.file_burst)
  return own, own_burst, true
end

-- parts.slots returns how many jobs of a tenant with a concurrency may run in this shard.
function parts.slots(t)
  if set.shards == 1 then return t[T_CONC] end
  if parts.lent_to(t) then return t[T_L_CONC] end
  if t[T_LENT] == 1 and parts.phase < 2 then return 0 end
  return parts.count(t[T_CONC])
end

-- PART_WORDS are the words of a group's lent (RECORD G below).
local PART_WORDS = { 'n', 'rate', 'conc', 'own_rate', 'own_conc', 'l_rate', 'l_burst', 'l_conc', 'till', 'phase', 'waited', 'wide' }

-- parts.lease returns the lease of a split group's limits, a table of PART_WORDS. nil: the record has the limits of this part, which are fixed.
function parts.lease(g)
  if g[G_LENT] == 0 then return nil end
  local d = parts.leases[g[G_KEY]]
  if not d then
    local i = 0
    d = {}
    for word in string.gmatch(g[G_LENT], '%d+') do
      i = i + 1
      if PART_WORDS[i] then d[PART_WORDS[i]] = tonumber(word) end
    end
    parts.leases[g[G_KEY]] = d
  end
  -- An earlier version changes the fixed part alone. That is then in force, as it is in the other parts.
  return d.own_rate == g[G_RATE] and d.own_conc == g[G_CONC] and d or nil
end

function parts.keep_lease(g, d)
  local words = {}
  for i, name in ipairs(PART_WORDS) do words[i] = int(d[name]) end
  g[G_LENT] = table.concat(words, ' ')
  parts.leases[g[G_KEY]] = d
end

-- parts.of_group returns phase and steps for the rate of a group with a lease d, as parts.phase and parts.steps are for the global rate. The
-- group's lease has an end of its own, because a lender of an earlier version renews the leases of the shard, and not that of the group. It
-- ends 100 ms early, the time in which a debt of the whole burst is paid: a process of an earlier version goes on to pay at the rate at which
-- the debt was made.
function parts.of_group(g, d)
  local own, own_burst = parts.rate(d.rate, 0, g[G_PART] - 1, d.n)
  local till, free = d.till - 100000, d.till + parts.after
  local steps = { [0] = { d.l_rate, d.l_burst, 0 }, { math.min(d.l_rate, own), math.min(d.l_burst, own_burst), till }, { own, own_burst, free } }
  return now < till and 0 or now < free and 1 or 2, steps
end

-- parts.slots_of returns how many jobs of a group may run in this shard; 0: any number.
function parts.slots_of(g)
  local d = g[G_LENT] ~= 0 and parts.lease(g)
  if not d or d.conc == 0 then return g[G_CONC] end
  return d.l_conc > 0 and d.l_conc or parts.count(d.conc, g[G_PART] - 1, d.n)
end

-- parts.widen records that a job costs more than this shard's part of the burst, so that it needs the whole burst. The time of that is the
-- field wide:<name> of the shard's state, and parts.wide reports for two seconds that there was one.
function parts.widen(b, name)
  if b.wide then redis.call('HSET', K.state, 'wide:' .. name, int(now)) end
  b.wide = nil
end

function parts.wide(name) return now - tonumber(redis.call('HGET', K.state, 'wide:' .. name) or 0) < 2000000 end

-- parts.carry changes a limiter to the rate and burst of b from a time on, and adds tokens (billionths). was and burst are the former rate and
-- burst. Tokens that are left stay as far as the burst allows, so that a change of shares creates none. It returns how many are lost.
function parts.carry(b, was, burst, from, tokens)
  local left = 0
  if was > 0 then
    local old = { rate = was, burst = burst, at = b.at, level = b.level }
    strategy.refill(old, from)
    left = burst * 1000000 - old.owed -- negative after a job that cost more than the burst: that debt stays
  end
  local kept = math.min(left + tokens, b.burst * 1000000)
  if b.rate == 0 then
    b.at, b.level = from, 0
    return math.max(0, left + tokens)
  end
  local owed = b.burst * 1000000 - kept
  b.at, b.level = from + math.floor(owed / b.rate), owed % b.rate
  strategy.refill(b, now)
  return left + tokens - kept
end

-- shard is the record of the whole shard:
--   v1, v2, v3         virtual times (v1 alone unless strict)
--   at, level          the global limiter
--   limiter            the limiter that wrote at and level, here and in the records of groups and tenants: 1 gcra, 2 fixed_window, 0 the
--                      configured one (written by an earlier version)
--   hold, beat         the time before which no lease ends; the last round of a dispatcher
--   mode, ordered      the order of the fair queue: 1 fair, 2 fair and strict, 3 by score; and when it was last changed
--   aside              number of deferred jobs
--   unserved, checked  those of them whose type no process has, as the dispatcher counted at checked
--   barred, marked     groups that wait for the limit of their type; runs that count towards such a limit
--   watched, tripped   breakers that have a record; those that are open (lib breakers)
--   live_*             settings by operators, which take precedence over the configuration
local SHARD = { 'last', 'adj', 'gseq', 'fence', 'v1', 'v2', 'v3', 'at', 'level', 'rate', 'hold', 'spins', 'starts',
  'queued', 'taken', 'inflight', 'pending', 'open_groups', 'mode', 'beat',
  'aside', 'unserved', 'checked', 'barred', 'marked', 'watched', 'tripped', 'limiter', 'ordered', 'live_global', 'live_tenant', 'found_global', 'live_types' }
SHARD.length = #SHARD - 4 -- without what is only read here
local shard = { last = 0, adj = 0, gseq = 0, fence = 0, v1 = 0, v2 = 0, v3 = 0, at = 0, level = 0, rate = 0, hold = 0, spins = 0,
  starts = 0, queued = 0, taken = 0, inflight = 0, pending = 0 } -- so that the table need not grow
local shard_was = redis.call('HMGET', K.state, unpack(SHARD))
do
  local live_global, live_tenant, found_global = unpack(shard_was, SHARD.length + 1, SHARD.length + 3)
  if set.adaptive == 1 and found_global then set.global = tonumber(found_global) end
  set.file_global, set.file_tenant = set.global, set.per_tenant
  if live_global then set.global = tonumber(live_global) end
  if live_tenant then set.per_tenant = tonumber(live_tenant) end
  set.file_burst, set.live_types = set.burst, shard_was[SHARD.length + 4] or ''
  for i = 1, SHARD.length do
    local n = tonumber(shard_was[i] or 0)
    shard[SHARD[i]], shard_was[i] = n, n
  end
end

-- The fair queue is in the order of one mode, whatever this process is configured for; lib bulkturns changes it.
local wished = set.policy == 'score' and 3 or 1 + set.strict
if shard.mode == 0 then shard.mode = wished end
set.policy, set.strict = shard.mode == 3 and 'score' or 'fair', shard.mode == 2 and 1 or 0

-- now is the shard's time: Redis's clock without jumps back. After a jump back it is ahead of that clock, and each passing second takes a tenth
-- of a second off the lead.
now = clock_now(ARGV[1])
if shard.adj > 0 and now >= shard.last then shard.adj = 0 end
if now + shard.adj < shard.last - 1000000 then
  shard.adj = shard.last - now
elseif shard.adj > 0 then
  shard.adj = shard.adj - math.min(shard.adj, math.max(0, math.floor((now + shard.adj - shard.last) / 10)))
end
now = now + shard.adj
if now > shard.last then shard.last = now end
if set.shards > 1 then parts.read() end

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
--   results, shrunk, cleared, gone, called_off, deleted, turn, redriving, limiter,
--   start_at, expires, expired, expiring, rolling, after, waits, skipped, followed,
--   quiet,
--   part, others,
--   far_waits, far_followed,
--   lent
-- RECORD T: name, weight, rate, at, frac, rated, v1, v2, v3, n1, n2, n3, gate, inflight, open, served, groups,
--   jobs, mean, backoff, seen, was, expect, work, u1, u2, u3, conc, full, limiter, rolling,
--   lent, l_rate, l_burst, l_conc, of_rate, of_conc

-- Level, weight and base that a tenant's token sets for a group count inside the tenant only: inner is then the level (and level is normal),
-- share the weight among tenants, based 1. They are 0 where an operator set level, weight and base, which count among tenants too.

-- A group is paused when as many of its jobs have failed or died as stop_count, or stop_share thousandths of a percent of them
-- (0: never). stopped is then 1, and 2 after an operator has resumed the group: it is not paused for that again.

-- Of a group whose aggregate only counts, tally is one more than the outcomes that were counted on arrival, and K.sums has the error codes of
-- the failed ones under <gkey>#: <code> <n> <code> <n> .... Where tally and the outcomes differ, a process of an earlier version has ended
-- some, and a reducer reads them all. 0: a reducer does the work. most_bad jobs may fail or die, or where bad_share is 1, as many in a hundred.

-- called_off counts jobs that run and are to be cancelled: K.aside has c<gkey>/<id> of each. deleted is 1 while the data of an ended group
-- is being deleted: other scripts then no longer find the group by its id. redriving is the short name of its last redrive (0: none): while
-- that is open, the group gets no other.

-- Of a tenant with a rate or concurrency of its own (lent 1, with several shards), l_rate, l_burst and l_conc are this shard's lease of them, and
-- of_rate and of_conc the limits of which that is a part. The field limited of the shard's state has the names of such tenants.

-- No job of a group starts before start_at, and none from expires on (µs, 0: none). expired is 1 once a script has noticed that expires has
-- passed: from then on the group's jobs that neither run nor have ended are ended as dead (group_tend).

-- expiring is 1 once a job with a time of its own was added, at which it expires. rolling is when a group of single jobs is sealed (lib
-- bulkunique; 0: other groups); a tenant's rolling counts its groups of that kind, which no ceiling bounds.

-- quiet are the hours of each day in which none starts (0: none), as words: from and to (HH:MM), the time zone, its offset from UTC, and each later
-- change of its clocks as a time and the offset from then on, in seconds.

-- A group with after waits for the end of others, its predecessors (lib bulklife): 1 starts when all have completed, 2 when one has not, 3 in
-- any case; 0: it has none. waits is one more than the number of those that have not ended, and 0 once it is decided; skipped is 1 if the
-- group was cancelled then. followed counts the groups that wait for it.
-- far_waits are those of waits that are on other shards, and far_followed counts the groups on other shards that wait for it.

-- A split group has a record of this kind on each of its shards, with the jobs of that shard. part is 1 in the one that decides for the whole
-- group, and 2, 3, … in the others; 0: the group is not split. A part whose jobs have all ended stays AGGREGATING, or CANCELLED and swept 1,
-- until group_join. others has the counts of the other parts from then on, as words: total, succ, fail, dead, canc, throttles, gone.
-- lent has the limits of the whole group and this part's lease of them, as words (0: an earlier version has created the part, or it has none):
--   the number of parts
--   rate and conc of the whole group (0: the record has this part of it, which is fixed, or there is no limit)
--   rate and conc of the record, which are then no more than either the lease or the fixed part, so that a process of an earlier version,
--     which reads only these, exceeds neither
--   rate, burst and conc of the lease (0: there is none), and when its rate and burst end (0: there is none); its conc does not end
--   the phase in which at and frac were written (parts.of_group)
--   when the rate last held a job back
--   when a job last cost more than the part's burst

-- Work, where time is shared, in µs: expect is the recent mean run time, charged the charge of the group's jobs in flight, due the difference of
-- charges and run times of ended runs that is not charged yet. lag is the part of that difference that is charged among tenants and not
-- among the tenant's groups, because the group was its only one in the queue. work is the total time that a tenant has used, u1…u3 its last
-- tags.

-- STEP_BYTES bounds the job records that one step reads; the first one may be larger.
local STEP_BYTES = 1048576

-- groups and tenants have the records that this call has read, finished the ids of the jobs that it has ended, records the new records of those
-- jobs (key, record, …), over the jobs whose runs it has ended.
local groups, tenants, finished, records, over = {}, {}, {}, {}, {}
-- tally is for groups whose outcomes are counted on arrival: codes has the error codes of this call by group, ends the number of groups that it
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

-- named_group returns a group and its short name, by its id; nil where there is none, or where it is being deleted.
local function named_group(id)
  local gkey = redis.call('HGET', K.names, id)
  local g = gkey and bulk_group(gkey)
  if g and g[G_DELETED] == 0 then return g, gkey end
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

-- types has the functions about types of jobs; most are in lib bulktypes. types.uses holds how much of the limits is used, for the types that
-- this call has read. 'use:<type>' in the shard's state has the limiter's at, level and rate, how many runs count towards the concurrency,
-- the concurrency by the last pull, and limiter.
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

-- append_ids adds ids to the end of a paged list, given its last page and the number of entries in it, and returns both.
local PAGE = 100
local function append_ids(key, gkey, page, count, ids)
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

-- write_parts runs a command with a list in parts that fit the stack.
local function write_parts(command, key, list)
  for i = 1, #list, 1000 do redis.call(command, key, unpack(list, i, math.min(i + 999, #list))) end
end

-- tally.save adds to the error codes of a group. It distinguishes a hundred and counts the rest as other.
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

-- bulk_save writes back the records that were read.
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
  write_parts('HSET', K.jobs, records)
  write_parts('HDEL', K.jobs, tally.gone)
  write_parts('HDEL', K.runs, over)
  local packed, n = {}, 0
  for gkey, g in pairs(groups) do
    if g then
      if finished[gkey] then g[G_DP], g[G_DN] = append_ids(K.done, gkey, g[G_DP], g[G_DN], finished[gkey]) end
      packed[n + 1], packed[n + 2] = gkey, cmsgpack.pack(g)
      n = n + 2
    end
  end
  write_parts('HSET', K.flow, packed)
  packed, n = {}, 0
  for name, t in pairs(tenants) do
    packed[n + 1], packed[n + 2] = name, cmsgpack.pack(t)
    n = n + 2
  end
  write_parts('HSET', K.tenants, packed)
end

-- wake_worker wakes one process that waits for work.
local function wake_worker()
  if redis.call('LLEN', K.bell) == 0 then redis.call('LPUSH', K.bell, 1) end
end

-- raise_largest keeps the size of a group's largest record, of submitted jobs (G_LARGEST) or of outcomes (G_WIDEST). 0 means unknown, as in a
-- group that an earlier version began; none reports whether this is the group's first.
local function raise_largest(g, field, none, bytes)
  if bytes > g[field] and (none or g[field] > 0) then g[field] = bytes end
end

local function ended(g) return g[G_SUCC] + g[G_FAIL] + g[G_DEAD] + g[G_CANC] end
