-- bulkjobs: the records of single jobs, their runs, and their outcomes.
--
-- jobs holds one record for each job, whose first letter is its state:
--   P<cost> <type> <created, ms> <expires, ms> t<trace>\n<payload>   not ended; the last words only where it expires, and where its
--                                                   submission was traced: trace, span and tracestate in base64url
--   S<attempts> <ms> <ran> <age> <type>\n<result>   succeeded: its last run took ran ms, and it had been in the group for age ms
--   F<attempts> <ms> <code> <cost> <type> <n> <ran> <age>\n<error of n bytes><payload>   failed; without payload once it is given to a redrive.
--                                                   An earlier version wrote no words behind the code, and no payload
--   D…                                              dead, as F
--   R…                                              dead and given to a redrive: as D, without payload
--   C0 <ms>\n                                       cancelled
--   K\n                                             ended, and its outcome is not kept (lib outcomes)
-- An empty type is written as a dash. A run or age of -1 is unknown. A later version may append words to these first lines; this version
-- ignores them.
-- dead holds <gkey>/<id> of each dead job with a payload, and F<gkey>/<id> of each failed one, which the group's kept counts.
-- runs holds one record for each job that has run and has not ended:
--   <fence> <failed tries> <crashes> <refusals> <refused since, ms> <process> <counted type> @<created, ms> <type>
-- The process is there while it runs the job, the counted type while the run counts towards the type's concurrency. A job that runs for the
-- first time usually has none, but a place in a batch (lib bulkleases).

-- Work: where time is shared, a turn is charged the time that its jobs are expected to run, and the difference to the time that they did run is
-- charged when they end. A run of UNIT µs moves a tag as a cost of 1 does; a difference of up to SLACK µs is charged with the group's next turn,
-- which costs nothing. They are in one table, because a script has 200 local variables at most.
local work = { by_time = set.by_time == 1 and set.gating == 1 and set.policy == 'fair', UNIT = 8000, SLACK = 10000, FIRST = 10000 }

-- read_run parses a record of runs. likely is the fence that the record probably has, as text; held reports whether it has that fence. Most
-- runs are the first of their job: these are parsed and written without the long pattern. created stays text.
local function read_run(text, likely)
  if not text then return { fence = 0, tries = 0, crashes = 0, refusals = 0, since = 0, first = true } end
  if likely and string.sub(text, 1, #likely + 9) == likely .. ' 0 0 0 0 ' then
    local created, kind = string.match(text, '^ @(%d+) (%S+)$', string.find(text, ' @', #likely + 10, true))
    return { fence = likely, held = true, tries = 0, crashes = 0, refusals = 0, since = 0, created = created, kind = kind }
  end
  local created, kind = string.match(text, ' @(%d+) (%S+)$')
  local fence, tries, crashes, refusals, since = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+)')
  return {
    fence = tonumber(fence), held = fence == likely, tries = tonumber(tries), crashes = tonumber(crashes), refusals = tonumber(refusals),
    since = tonumber(since), created = created, kind = kind,
  }
end

-- write_run formats a record of runs. fence is its fence as text, if the caller has it.
local function write_run(r, owner, fence)
  local about = r.kind and ' @' .. r.created .. ' ' .. r.kind or ''
  if r.first and fence then return fence .. ' 0 0 0 0 ' .. (owner or '') .. about end
  return string.format('%d %d %d %d %d %s%s', r.fence, r.tries, r.crashes, r.refusals, r.since, owner or '', about)
end

-- types.release subtracts a run from the concurrency of its type. text is the run's record, and kind its counted type where there is none.
function types.release(text, kind)
  if shard.marked == 0 then return end
  kind = text and string.match(text, '^%d+ %d+ %d+ %d+ %d+ %S+ ([^@%s]%S*)') or kind
  if not kind then return end
  local u = types.use(kind)
  if u.most > 0 and u.running >= u.most then wake_worker() end
  u.running, shard.marked = u.running - 1, shard.marked - 1
end

-- read_head returns what the first line of the record of a job that has not ended contains: cost, type (empty: the group's) and, as it is
-- written, word, time of submission (ms, as text; nil: unknown), when it expires (ms; nil: never), and the
-- length of the line; nil for others. Jobs that were submitted together usually have the same line: work.heads keeps those that this call has
-- read.
work.heads = {}
local function read_head(rec)
  local stop = rec and string.find(rec, '\n', 1, true)
  if not stop then return nil end
  local line = string.sub(rec, 1, stop)
  local head = work.heads[line]
  if head == nil then
    local cost, kind, created, expires = string.match(line, '^P(%d+) (%S+) ?(%d*) ?(%d*)')
    head = cost and { cost = tonumber(cost), kind = kind ~= '-' and kind or '', word = kind, created = created ~= '' and created or nil,
      expires = tonumber(expires), length = stop } or false
    work.heads[line] = head
  end
  return head or nil
end

-- read_pending returns cost, type, payload, time of submission (ms, as text; nil: unknown) of a job that has not ended, and when it expires (ms;
-- nil: never); nil for others.
local function read_pending(rec)
  if not rec or string.byte(rec) ~= 80 then return nil end -- P
  local cost, kind, created, expires, stop = string.match(rec, '^P(%d+) (%S+) ?(%d*) ?(%d*)[^\n]*\n()')
  if kind == '-' then kind = '' end
  return tonumber(cost), kind, string.sub(rec, stop), created ~= '' and created or nil, tonumber(expires)
end

-- types.head returns the first line of the record of a job that is added to a group now, with its end. kind is a dash for the group's type; expires
-- is in µs, 0: never; trace is the word of the record or empty.
function types.head(g, cost, kind, expires, trace)
  if kind ~= '-' and kind ~= g[G_TYPE] and g[G_UNIFORM] == 1 then
    g[G_UNIFORM] = 0
    types.unbar(g) -- jobs of another type need not wait
  end
  local ends = ''
  if expires > 0 then
    ends, g[G_EXPIRING] = ' ' .. int(math.floor(expires / 1000)), 1
  end
  if trace ~= '' then ends = ends .. ' ' .. trace end
  return 'P' .. cost .. ' ' .. kind .. ' ' .. int(math.floor(now / 1000)) .. ends .. '\n'
end

local function group_of(jobkey)
  return string.sub(jobkey, 1, string.find(jobkey, '/', 1, true) - 1)
end

-- refused_of returns the member of a waiting job in K.refused; kind is N (refused, retried, crashed) or S (for later).
local function refused_of(kind, g, jobkey)
  return kind .. g[G_TENANT] .. '/' .. jobkey
end

local function count_refused(prefix)
  return redis.call('ZLEXCOUNT', K.refused, '[' .. prefix .. '/', '(' .. prefix .. '0')
end

-- wait_until adds a job to those that wait.
local function wait_until(g, jobkey, till, kind)
  redis.call('ZADD', K.waiting, int(till), jobkey)
  redis.call('ZADD', K.refused, 0, refused_of(kind, g, jobkey))
end

-- A job whose type the pulling process does not run is deferred, in a queue for each group and type, until a process with that type pulls.
-- K.aside holds, at one score:
--   j<group> <type> <µs, and a number in this step> <id>   the job
--   t<type> <group>                                        that the group has such jobs
-- Jobs of a type whose limit is used up are deferred too if their group has several types; a group of that type alone is blocked (types.bar).
-- Jobs that a breaker of type and tenant holds back are under its name, <type>@<tenant>, in place of the type.
-- 'type:<type>' in the shard's state is the last sign of a process with that type; a type counts as served for SERVED µs.
types.SERVED, types.deferred = 60000000, 0

local function defer_job(g, jobkey, kind)
  types.deferred = types.deferred + 1
  redis.call('ZADD', K.aside, 0, 'j' .. g[G_KEY] .. ' ' .. kind .. ' ' .. string.format('%016.0f%05d', now, types.deferred) .. ' ' .. string.sub(jobkey, #g[G_KEY] + 2),
    0, 't' .. kind .. ' ' .. g[G_KEY])
  g[G_ASIDE], shard.aside = g[G_ASIDE] + 1, shard.aside + 1
end

-- deferred_range returns the first and last bound of the members that begin with words.
local function deferred_range(words)
  return '[' .. words .. ' ', '(' .. words .. '!'
end

local function deferred_members(gkey, kind, n)
  local first, last = deferred_range('j' .. gkey .. ' ' .. kind)
  return redis.call('ZRANGEBYLEX', K.aside, first, last, 'LIMIT', 0, n)
end

-- deferred_kinds returns the types (or names of breakers), 200 at most, of which a group (or, with '', any group) has deferred jobs.
local function deferred_kinds(gkey)
  local list, at, last = {}, gkey == '' and '[t' or '[j' .. gkey .. ' ', gkey == '' and '(u' or '(j' .. gkey .. '!'
  while #list < 200 do
    local member = redis.call('ZRANGEBYLEX', K.aside, at, last, 'LIMIT', 0, 1)[1]
    if not member then break end
    local kind = string.match(member, gkey == '' and '^t(%S+) ' or '^j%S+ (%S+) ')
    list[#list + 1] = kind
    at = (gkey == '' and '(t' or '(j' .. gkey .. ' ') .. kind .. '!'
  end
  return list
end

-- types.type_of returns the type of a name that is a type, or a breaker's of type and tenant.
function types.type_of(name) return string.match(name, '^[^@]+') end

local function type_seen(name) return tonumber(redis.call('HGET', K.state, 'type:' .. types.type_of(name)) or 0) end

-- types.free_barred unblocks up to n groups that wait for the limits of a type that no process has: the next pull defers their jobs. It returns
-- their number.
function types.free_barred(n)
  local freed, at = 0, '[w'
  while shard.barred > 0 and freed < n do
    local member = redis.call('ZRANGEBYLEX', K.aside, at, '(x', 'LIMIT', 0, 1)[1]
    if not member then break end
    local kind = string.match(member, '^w(%S+) ')
    at = '(w' .. kind .. '!'
    local list = now - type_seen(kind) > types.SERVED and redis.call('ZRANGEBYLEX', K.aside, '[w' .. kind .. ' ', at, 'LIMIT', 0, n - freed) or {}
    for _, barred in ipairs(list) do
      local g = bulk_group(string.match(barred, '([^/]+)$'))
      if g and g[G_BAR] == barred then
        types.unbar(g)
        requeue(g)
      else
        redis.call('ZREM', K.aside, barred)
        shard.barred = shard.barred - 1
      end
      freed = freed + 1
    end
  end
  return freed
end

-- take_deferred removes deferred jobs of one group and type, and returns their names and since when they were deferred.
local function take_deferred(g, kind, members)
  local list, since = {}, {}
  for i, member in ipairs(members) do
    local at, id = string.match(member, '^j%S+ %S+ (%d+) (.+)$')
    list[i], since[i] = g[G_KEY] .. '/' .. id, at
  end
  if members[1] then redis.call('ZREM', K.aside, unpack(members)) end
  g[G_ASIDE], shard.aside = g[G_ASIDE] - #members, shard.aside - #members
  if not deferred_members(g[G_KEY], kind, 1)[1] then redis.call('ZREM', K.aside, 't' .. kind .. ' ' .. g[G_KEY]) end
  return list, since
end

-- read_kinds returns the types that a process runs as a list and as a set; for one that runs every type, the types of which jobs are deferred,
-- and nil.
local function read_kinds(text)
  if text == '' then return shard.aside > 0 and deferred_kinds('') or {}, nil end
  local list, mine = {}, {}
  for kind in string.gmatch(text, '%S+') do
    list[#list + 1], mine[kind] = kind, true
  end
  return list, mine
end

local function now_ms() return (now - now % 1000) / 1000 end

-- The front has the jobs that came back: those that were due, run again, or were deferred. K.front holds for each, at one score,
--   +<group> <µs when it was due, or came back> <number, for deferred jobs> <id>
-- so that the job that was due first starts first. A group with both takes jobs from the front and from the order pages in turns, TURN of the
-- front and OTHERS of the pages: G_TURN counts those of the front up to TURN, then those of the pages.
-- An earlier version wrote <group>/<id>: those are converted, as due before all others.
work.TURN, work.OTHERS = 48, 16

-- types.expired reports whether a job that has not ended has a time of its own to expire, which has passed.
function types.expired(jobkey)
  local _, _, _, _, expires = read_pending(redis.call('HGET', K.jobs, jobkey))
  return expires and now_ms() >= expires
end

-- to_front adds a job to the front of its group; since is when it was due, 21 digits (nil: now).
local function to_front(g, jobkey, since)
  redis.call('ZADD', K.front, 0, '+' .. g[G_KEY] .. ' ' .. (since or string.format('%016.0f00000', now)) .. ' ' .. string.sub(jobkey, #g[G_KEY] + 2))
  g[G_FRONT] = g[G_FRONT] + 1
  shard.pending = shard.pending + 1
end

-- work.adopt converts up to n members of an earlier version, from first to last, and returns their number.
function work.adopt(first, last, n)
  local list = redis.call('ZRANGEBYLEX', K.front, first, last, 'LIMIT', 0, n)
  for _, member in ipairs(list) do
    redis.call('ZREM', K.front, member)
    redis.call('ZADD', K.front, 0, '+' .. string.gsub(member, '/', ' 000000000000000000000 ', 1))
  end
  return #list
end

-- work.fronts returns up to n members of a group's front, in their order.
function work.fronts(g, n)
  local list = redis.call('ZRANGEBYLEX', K.front, '[+' .. g[G_KEY] .. ' ', '(+' .. g[G_KEY] .. '!', 'LIMIT', 0, n)
  if list[1] or work.adopt('[' .. g[G_KEY] .. '/', '(' .. g[G_KEY] .. '0', n) == 0 then return list end
  return work.fronts(g, n)
end

-- work.job_of returns the job of a member of the front.
function work.job_of(g, member)
  return g[G_KEY] .. '/' .. string.sub(member, #g[G_KEY] + 25)
end

-- work.run_times returns the time of a job's last run and its age (ms; -1: unknown), for its outcome.
function work.run_times(run, created)
  local took, age = run.took or 0, created and now_ms() - created or -1
  return took > 0 and (took - took % 1000) / 1000 or -1, created and age < 0 and 0 or age
end

-- work.too_many reports whether enough jobs of a group have failed to stop it; of a split group bulk/store decides that. While jobs may be added, a share is of at least a thousand jobs.
function work.too_many(g)
  if g[G_PART] > 0 then return false end
  local failed, of = g[G_FAIL] + g[G_DEAD], g[G_SEALED] == 1 and g[G_TOTAL] or math.max(1000, g[G_TOTAL])
  return g[G_STOP_COUNT] > 0 and failed >= g[G_STOP_COUNT] or g[G_STOP_SHARE] > 0 and failed * 100000 >= g[G_STOP_SHARE] * of
end

-- work.stop pauses a group of which too many jobs have failed, unless it was resumed after that or has expired.
function work.stop(g)
  if g[G_EXPIRES] > 0 and now >= g[G_EXPIRES] then return end
  if g[G_STOPPED] == 0 and g[G_PAUSED] == 0 and work.too_many(g) then
    g[G_PAUSED], g[G_STOPPED] = 1, 1
    dequeue(g)
  end
end

-- work.log adds a job's outcome to its group's log. Of an outcome that is counted and not kept (G_RESULTS) nothing is kept or, while jobs may
-- be added, only that there was one.
function work.log(g, jobkey, record, count)
  if g[G_TALLY] > 0 and (g[G_RESULTS] > 0 and count == G_SUCC or g[G_RESULTS] == 2 and count == G_CANC) then
    if g[G_SEALED] == 1 or g[G_STATUS] > RUNNING then
      tally.gone[#tally.gone + 1], g[G_GONE] = jobkey, g[G_GONE] + 1
      return
    end
    record, g[G_SHRUNK] = 'K\n', g[G_SHRUNK] + 1
  end
  local n, list = #records, finished[g[G_KEY]]
  records[n + 1], records[n + 2] = jobkey, record
  if not list then
    list = {}
    finished[g[G_KEY]] = list
  end
  list[#list + 1] = string.sub(jobkey, #g[G_KEY] + 2)
end

-- end_job writes a job's outcome: the record, the log of outcomes, the counts.
local function end_job(g, t, jobkey, record, count, run)
  if not (run and run.shared) then over[#over + 1] = jobkey end
  work.log(g, jobkey, record, count)
  local before = ended(g)
  if #record > g[G_WIDEST] then raise_largest(g, G_WIDEST, before == 0, #record) end
  g[count], g[G_OUTCOME_AT] = g[count] + 1, now
  if count == G_FAIL or count == G_DEAD then work.stop(g) end
  tenant_open(t, -1)
  if run and t[T_OPEN] > 0 then
    t[T_JOBS] = t[T_JOBS] + 1
    t[T_MEAN] = t[T_MEAN] + (run.refusals - t[T_MEAN]) / t[T_JOBS]
  end
  -- The rate of the last five to ten seconds.
  if now - g[G_W_AT] > 5000000 then
    g[G_P_AT], g[G_P_N], g[G_W_AT], g[G_W_N] = g[G_W_AT], g[G_W_N], now, before
  end
  if g[G_TALLY] > 0 then
    g[G_TALLY] = g[G_TALLY] + 1
  elseif (before + 1 - g[G_REDUCED]) % 2000 == 0 then
    plan_tend(g, now) -- a reducer processes outcomes while the group runs, some thousand at a time
  end
end

local function cancel_job(g, t, jobkey)
  end_job(g, t, jobkey, 'C0 ' .. int(now_ms()) .. '\n', G_CANC)
end

-- work.called_off reports whether a job that has left the leases is cancelled, with its group or alone. It removes the mark of a job that was
-- cancelled alone.
function work.called_off(g, jobkey)
  local alone = g[G_CALLED_OFF] > 0 and redis.call('ZREM', K.aside, 'c' .. jobkey) == 1
  if alone then g[G_CALLED_OFF] = g[G_CALLED_OFF] - 1 end
  return alone or g[G_STATUS] == CANCELLED
end

-- bury ends a job that may be redriven, and keeps its payload. state is F (failed) or D (dead, the default).
local function bury(g, t, jobkey, run, code, text, state)
  local cost, kind, payload, created = read_pending(redis.call('HGET', K.jobs, jobkey))
  if kind == '' then kind = '-' end
  local failed = state == 'F'
  redis.call('ZADD', K.dead, 0, failed and 'F' .. jobkey or jobkey)
  if failed then g[G_KEPT] = g[G_KEPT] + 1 end
  if g[G_TALLY] > 0 then
    local n = tally.codes[g[G_KEY]] or {}
    tally.codes[g[G_KEY]], n[code] = n, (n[code] or 0) + 1
  end
  end_job(g, t, jobkey, string.format('%s%d %d %s %d %s %d %d %d\n', state or 'D', run.tries, now_ms(), code, cost or 1, kind or '-', #text,
    work.run_times(run, created)) .. text .. (payload or ''), failed and G_FAIL or G_DEAD, run)
end

-- tenant_rate returns how many jobs a tenant may start in a second, in thousandths: its own limit, or its share in whole jobs, at least 1.
local function tenant_rate(t)
  local own, _, limited = parts.tenant(t)
  if limited then return math.max(1, own) end
  return math.max(1, math.floor(set.global / 1000 / math.max(1, redis.call('ZCARD', K.busy)))) * 1000
end

-- backoff returns how long a refused job of the tenant waits.
local function backoff(t)
  local wait = set.base
  if set.congestion == 1 then
    wait = math.min(set.max, set.base + math.floor(count_refused('N' .. t[T_NAME]) * 1000 / tenant_rate(t)) * 1000000)
    shard.spins = shard.spins + math.max(0, math.floor(wait / set.base) - 1)
  end
  t[T_BACKOFF] = wait
  return wait
end

-- A start passes the limiters global, tenant and group; nil where there is none. Their state includes the rate and the kind of limiter that wrote
-- it, so that a change of either, by an operator, a new configuration or a process that has another one, neither grants nor loses tokens.
local function refilled(rate, burst, at, level, was, by)
  local b = { rate = rate, burst = default_burst(rate, burst), at = at, level = level, window = set.window }
  if by > 0 and by ~= set.by then
    strategy.adopt(b, was, now)
    b.adopted_at, b.adopted_level = b.at, b.level
    return b
  end
  strategy.refill(b, now)
  strategy.rerate(b, was)
  return b
end

-- work.changed reports whether a limiter's state has to be written back: not one that was adopted and from which nothing was taken.
function work.changed(b) return b and not (b.at == b.adopted_at and b.level == b.adopted_level) end

-- parts.shift changes a limiter whose state was written in one phase (parts.steps) to a later one: each phase in between when it began.
function parts.shift(b, from, to, steps)
  for phase = from + 1, to do
    local rate, burst = b.rate, b.burst
    b.rate, b.burst = unpack(steps[phase])
    parts.carry(b, rate, burst, steps[phase][3], 0)
  end
end

local function global_limiter()
  if set.shards == 1 then return refilled(set.global, set.burst, shard.at, shard.level, shard.rate, shard.limiter) end
  local b = { at = shard.at, level = shard.level, rate = shard.rate, burst = parts.lent, whole = set.whole_burst }
  parts.shift(b, parts.was, parts.phase, parts.steps)
  local rate, burst = b.rate, b.burst
  b.rate, b.burst = set.global, set.burst
  if rate == b.rate and burst == b.burst then strategy.refill(b, now) else parts.carry(b, rate, burst, now, 0) end
  return b
end

local function save_global_limiter(b)
  parts.widen(b, '')
  if not work.changed(b) then return end
  shard.at, shard.level, shard.rate, shard.limiter = b.at, b.level, b.rate > 0 and b.rate or shard.rate, set.by
  if set.shards > 1 and (parts.lent ~= b.burst or parts.was ~= parts.phase) then
    parts.lent, parts.was = b.burst, parts.phase
    redis.call('HSET', K.state, 'lent', int(b.burst) .. ' ' .. parts.phase)
  end
end

local function tenant_limiter(t, share)
  local rate, burst, limited = parts.tenant(t)
  if not limited then
    if not share then return nil end
    rate = tenant_rate(t)
  end
  local b = refilled(rate, burst, t[T_AT], t[T_FRAC], t[T_RATED], t[T_LIMITER])
  if t[T_LENT] == 1 and t[T_RATE] > 0 and set.shards > 1 then b.whole = default_burst(t[T_RATE], set.file_burst) end
  return b
end

local function group_limiter(g)
  if g[G_RATE] == 0 then return nil end
  local d = g[G_LENT] ~= 0 and parts.lease(g)
  if not d or d.rate == 0 then return refilled(g[G_RATE], 0, g[G_AT], g[G_FRAC], g[G_RATED], g[G_LIMITER]) end
  local phase, steps = parts.of_group(g, d)
  local b
  if d.phase == phase then
    b = refilled(steps[phase][1], steps[phase][2], g[G_AT], g[G_FRAC], g[G_RATED], g[G_LIMITER])
    b.burst = steps[phase][2] -- also where that is nothing
  else
    local rate, burst = unpack(steps[d.phase])
    b = { at = g[G_AT], level = g[G_FRAC], rate = rate > 0 and g[G_RATED] > 0 and g[G_RATED] or rate, burst = burst }
    parts.shift(b, d.phase, phase, steps)
  end
  b.lease, b.phase, b.whole = d, phase, default_burst(d.rate, 0)
  return b
end

-- parts.change_lease changes the lease of a group's rate. b is its limiter before, phase that of the new one. It returns the tokens that are lost.
function parts.change_lease(g, d, b, rate, burst, till, phase, tokens)
  local was, before = b.rate, b.burst
  b.rate, b.burst = rate, burst
  local lost = parts.carry(b, was, before, now, tokens)
  -- A process of an earlier version has the smaller of the lease and the fixed part, and starts nothing where that is nothing.
  local own = parts.rate(d.rate, 0, g[G_PART] - 1, d.n)
  g[G_RATE], g[G_AT], g[G_FRAC], g[G_RATED], g[G_LIMITER] = math.max(1, math.min(rate, own)), b.at, b.level, math.max(1, rate), set.by
  if rate == 0 then g[G_AT], g[G_FRAC] = till + parts.after, 0 end
  d.l_rate, d.l_burst, d.till, d.phase = rate, burst, till, phase
  return lost
end

-- MOST_LENT bounds the groups of a shard whose limits are lent: each costs rates_lend 0.1 ms a call. Other groups have fixed parts.
local MOST_LENT = 50

-- parts.divide sets the limits of the whole group of which g is a part, whose fixed parts the record has. nil: that limit is as it was. d and b are
-- the lease and the limiter before the change. While there is a lease, the part has no more than both that and its new fixed part, because other
-- parts may have their old lease still: so the leases are never more than the greater limit. shards are those of all parts, in words. The
-- field parted of the shard's state has the groups that rates_lend reads, as <short name>:<shards, by commas>.
function parts.divide(g, d, b, shards, rate, conc)
  local _, n = string.gsub(shards, '%d+', '')
  d = d or { n = n, rate = 0, conc = 0, own_rate = 0, own_conc = 0, l_rate = 0, l_burst = 0, l_conc = 0, till = 0, phase = 2, waited = 0, wide = 0 }
  if rate and rate == d.rate and rate > 0 then
    g[G_RATE] = d.own_rate
  elseif rate and rate > 0 and b and b.lease then
    local own, burst = parts.rate(rate, 0, g[G_PART] - 1, d.n)
    local fixed = g[G_RATE]
    d.rate = rate
    if b.phase < 2 then
      parts.change_lease(g, d, b, math.min(b.rate, own), math.min(b.burst, burst), d.till, b.phase, 0)
    else
      parts.change_lease(g, d, b, own, burst, 0, 2, 0)
      g[G_RATE] = fixed -- rounded so that the parts' sum is the limit
    end
  elseif rate then
    d.rate, d.till, d.phase = rate, 0, 2
  end
  if conc and conc == d.conc and conc > 0 then
    g[G_CONC] = d.own_conc
  elseif conc and conc > 0 and d.l_conc > 0 then
    d.conc, d.l_conc = conc, math.min(d.l_conc, g[G_CONC])
    g[G_CONC] = d.l_conc
  elseif conc then
    d.conc, d.l_conc = conc, 0
  end
  d.own_rate, d.own_conc = g[G_RATE], g[G_CONC]
  parts.keep_lease(g, d)
  local list = redis.call('HGET', K.state, 'parted') or ''
  local _, count = string.gsub(list, ':', '')
  if d.rate + d.conc == 0 or count >= MOST_LENT or string.find(' ' .. list, ' ' .. g[G_KEY] .. ':', 1, true) then return end
  redis.call('HSET', K.state, 'parted', (list == '' and '' or list .. ' ') .. g[G_KEY] .. ':' .. string.gsub(shards, ' ', ','))
end

-- save_tenant_limiter and save_group_limiter write a limiter's state back.
local function save_tenant_limiter(t, b)
  if b then parts.widen(b, '@' .. t[T_NAME]) end
  if work.changed(b) then t[T_AT], t[T_FRAC], t[T_RATED], t[T_LIMITER] = b.at, b.level, b.rate > 0 and b.rate or t[T_RATED], set.by end
end

-- waits reports whether the group's rate has held a job back.
local function save_group_limiter(g, b, waits)
  if not b then return end
  local d = b.lease
  if d then
    if waits then d.waited = now end
    if b.wide then d.wide = now end
    b.wide = nil
    if b.rate > 0 then d.phase = b.phase end
    parts.keep_lease(g, d)
    if b.rate == 0 then return end -- nothing was taken
  end
  if work.changed(b) then g[G_AT], g[G_FRAC], g[G_RATED], g[G_LIMITER] = b.at, b.level, b.rate, set.by end
end

-- peek_jobs returns up to n jobs of a group in their order, of which from_front come from the front, without removing them. The others come from
-- one page, and not beyond their turn, so there may be more. ends has the members of the front, and where the jobs of the page end.
local function peek_jobs(g, n)
  local list, from_front, ends = {}, 0, {}
  if g[G_FRONT] > 0 then
    local most, both = n, g[G_TAKEN] < g[G_ADDED]
    if both then most = math.min(n, work.TURN - g[G_TURN]) end
    if most > 0 then
      ends = work.fronts(g, most)
      from_front = #ends
      for i = 1, from_front do list[i] = work.job_of(g, ends[i]) end
    end
    if both and from_front < g[G_FRONT] then
      n = math.min(n, work.TURN + work.OTHERS - g[G_TURN])
    end
  end
  local page
  if #list < n and g[G_TAKEN] < g[G_ADDED] then
    page = redis.call('HGET', K.order, g[G_KEY] .. ':' .. int(g[G_HP])) or ''
    while page == '' and g[G_HP] < g[G_TP] do -- all jobs of the page were cancelled
      redis.call('HDEL', K.order, g[G_KEY] .. ':' .. int(g[G_HP]))
      g[G_HP], g[G_HO] = g[G_HP] + 1, 0
      page = redis.call('HGET', K.order, g[G_KEY] .. ':' .. int(g[G_HP])) or ''
    end
    local at = g[G_HO] + 1
    while #list < n do
      local stop = string.find(page, '\n', at, true)
      if not stop then break end
      list[#list + 1] = g[G_KEY] .. '/' .. string.sub(page, at, stop - 1)
      ends[#list] = stop
      at = stop + 1
    end
  end
  return list, from_front, ends, page and #page or 0
end

-- fit_bytes returns how many of the jobs have records of at most room bytes together.
local function fit_bytes(g, list, room)
  local n = #list
  if g[G_LARGEST] > 0 and n * g[G_LARGEST] <= room then return n end
  for i = 1, n do
    room = room - redis.call('HSTRLEN', K.jobs, list[i])
    if room < 0 then return i - 1 end
  end
  return n
end

-- pop_jobs removes the first n of the jobs that peek_jobs returned.
local function pop_jobs(g, n, list, from_front, ends, size)
  local front = math.min(n, from_front)
  if front > 0 then
    redis.call('ZREM', K.front, unpack(ends, 1, front))
    g[G_FRONT] = g[G_FRONT] - front
    if g[G_TAKEN] < g[G_ADDED] then g[G_TURN] = g[G_TURN] + front end
  end
  if n > from_front then
    local turn = g[G_TURN] + n - from_front
    g[G_TURN] = g[G_FRONT] > 0 and turn < work.TURN + work.OTHERS and turn or 0
    g[G_TAKEN] = g[G_TAKEN] + n - from_front
    g[G_HO] = ends[n]
    if g[G_HO] == size and (g[G_HP] < g[G_TP] or g[G_TN] > 0) then
      redis.call('HDEL', K.order, g[G_KEY] .. ':' .. int(g[G_HP]))
      if g[G_HP] == g[G_TP] then g[G_TP], g[G_TN] = g[G_TP] + 1, 0 end
      g[G_HP], g[G_HO] = g[G_HP] + 1, 0
    end
  end
  shard.pending = shard.pending - n
end
