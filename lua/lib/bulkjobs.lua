-- bulkjobs: the records of single jobs and their ways out.
--
-- jobs holds one record for each job, whose first letter is its state:
--   P<cost> <type> <created, ms>\n<payload>         not ended
--   S<attempts> <ms> <ran> <age> <type>\n<result>   succeeded: its last run took ran ms, and it had been in the group for age ms
--   F<attempts> <ms> <code> <cost> <type> <n> <ran> <age>\n<error of n bytes><payload>   failed; without payload once it is given to a redrive.
--                                                   An earlier version wrote no words behind the code, and no payload
--   D…                                              dead, as F
--   R…                                              dead and given to a redrive: as D, without payload
--   C0 <ms>\n                                       cancelled
--   K\n                                             ended, and its outcome is not kept (lib outcomes)
-- An empty type is written as a dash. A run or age of -1 is unknown. A later version may append words to these first lines, which are not read here.
-- dead holds <gkey>/<id> of each dead job with a payload, and F<gkey>/<id> of each failed one, which the group's kept counts.
-- runs holds what its runs have left behind, for jobs that have run:
--   <fence> <failed tries> <crashes> <refusals> <refused since, ms> <process that runs it, while it does> <its type, while it counts towards the type's concurrency> @<created, ms> <type>

-- read_run reads such a record; fence is the one that it is likely to have, as text, and held says whether it has it. Most runs
-- are the first of their job, and are read and written without the long pattern. created stays text.
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

-- write_run writes one; fence is its fence as text, where the caller has it.
local function write_run(r, owner, fence)
  local about = r.kind and ' @' .. r.created .. ' ' .. r.kind or ''
  if r.first and fence then return fence .. ' 0 0 0 0 ' .. (owner or '') .. about end
  return string.format('%d %d %d %d %d %s%s', r.fence, r.tries, r.crashes, r.refusals, r.since, owner or '', about)
end

-- types.release ends what a run counted towards the concurrency of its type. text is what is stored of the run.
function types.release(text)
  if shard.marked == 0 then return end
  local kind = string.match(text, '^%d+ %d+ %d+ %d+ %d+ %S+ ([^@%s]%S*)')
  if not kind then return end
  local u = types.use(kind)
  if u.most > 0 and u.running >= u.most then bell() end
  u.running, shard.marked = u.running - 1, shard.marked - 1
end

-- read_pending gives cost, type, payload and time of submission (ms, as text; nil: unknown) of a job that has not ended; nil
-- where it has.
local function read_pending(rec)
  if not rec or string.byte(rec) ~= 80 then return nil end -- P
  local cost, kind, created, stop = string.match(rec, '^P(%d+) (%S+) ?(%d*)[^\n]*\n()')
  if kind == '-' then kind = '' end
  return tonumber(cost), kind, string.sub(rec, stop), created ~= '' and created or nil
end

local function group_of(jobkey)
  return string.sub(jobkey, 1, string.find(jobkey, '/', 1, true) - 1)
end

-- refused_of is the member of a waiting job by tenant and group; kind is N (refused, retried, crashed) or S (for later).
local function refused_of(kind, g, jobkey)
  return kind .. g[G_TENANT] .. '/' .. jobkey
end

local function count_refused(prefix)
  return redis.call('ZLEXCOUNT', K.refused, '[' .. prefix .. '/', '(' .. prefix .. '0')
end

-- wait_until puts a job among those that wait.
local function wait_until(g, jobkey, till, kind)
  redis.call('ZADD', K.waiting, int(till), jobkey)
  redis.call('ZADD', K.refused, 0, refused_of(kind, g, jobkey))
end


-- A job whose type the process that meets it does not run is set aside, in a queue for each group and type, until a process with
-- that type pulls. K.aside holds, at one score:
--   j<group> <type> <µs, and a number in this step> <id>   the job
--   t<type> <group>                                        that the group has such jobs
-- The same holds for jobs of a type whose limit is used up, in groups of several types; other groups are barred (lib bulk). What a
-- breaker of type and tenant holds back goes by its name, <type>@<tenant>, in place of the type.
-- 'type:<type>' in the shard's state is when a process with that type was last heard of; a type counts as served for SERVED µs.
types.SERVED, types.set_aside = 60000000, 0

local function set_aside(g, jobkey, kind)
  types.set_aside = types.set_aside + 1
  redis.call('ZADD', K.aside, 0, 'j' .. g[G_KEY] .. ' ' .. kind .. ' ' .. string.format('%016.0f%05d', now, types.set_aside) .. ' ' .. string.sub(jobkey, #g[G_KEY] + 2),
    0, 't' .. kind .. ' ' .. g[G_KEY])
  g[G_ASIDE], shard.aside = g[G_ASIDE] + 1, shard.aside + 1
end

-- aside_range returns the first and last bound of the members that begin with words.
local function aside_range(words)
  return '[' .. words .. ' ', '(' .. words .. '!'
end

local function aside_members(gkey, kind, n)
  local first, last = aside_range('j' .. gkey .. ' ' .. kind)
  return redis.call('ZRANGEBYLEX', K.aside, first, last, 'LIMIT', 0, n)
end

-- aside_kinds lists the types (or names of breakers), 200 at most, of which a group (or, with '', any group) has jobs set aside.
local function aside_kinds(gkey)
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

-- type_of returns the type of jobs that wait by the name of their type, or of a breaker of type and tenant.
function types.type_of(name) return string.match(name, '^[^@]+') end

local function type_seen(name) return tonumber(redis.call('HGET', K.state, 'type:' .. types.type_of(name)) or 0) end

-- types.free_barred lets up to n groups that wait for the limits of a type back into line where no process has the type: the next pull
-- sets their jobs aside. It returns how many.
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
        place(g)
      else
        redis.call('ZREM', K.aside, barred)
        shard.barred = shard.barred - 1
      end
      freed = freed + 1
    end
  end
  return freed
end

-- leave_aside takes members of one group and type out and returns the names of their jobs, and since when they were there.
local function leave_aside(g, kind, members)
  local list, since = {}, {}
  for i, member in ipairs(members) do
    local at, id = string.match(member, '^j%S+ %S+ (%d+) (.+)$')
    list[i], since[i] = g[G_KEY] .. '/' .. id, at
  end
  if members[1] then redis.call('ZREM', K.aside, unpack(members)) end
  g[G_ASIDE], shard.aside = g[G_ASIDE] - #members, shard.aside - #members
  if not aside_members(g[G_KEY], kind, 1)[1] then redis.call('ZREM', K.aside, 't' .. kind .. ' ' .. g[G_KEY]) end
  return list, since
end

-- read_kinds reads the types that a process runs: the list, and the set; nil where it runs every type, and
-- the list then has the types of which jobs are set aside.
local function read_kinds(text)
  if text == '' then return shard.aside > 0 and aside_kinds('') or {}, nil end
  local list, mine = {}, {}
  for kind in string.gmatch(text, '%S+') do
    list[#list + 1], mine[kind] = kind, true
  end
  return list, mine
end

local function ms() return (now - now % 1000) / 1000 end

-- Work: where time is shared, a visit is charged what its jobs are expected to run, and what they did run is settled when they
-- end. A run of UNIT µs moves a tag as a cost of 1 does; up to SLACK µs are settled with the group's next visit, which costs nothing.
-- They stand in one table, because a script has 200 local variables at most.
local work = { by_time = set.by_time == 1 and set.gating == 1 and set.policy == 'fair', UNIT = 8000, SLACK = 10000, FIRST = 10000 }

-- The front has the jobs that have come back: those that fell due, are to run again, or were set aside. K.front holds for each, at one score,
--   +<group> <µs when it was due, or came back> <number, for jobs set aside> <id>
-- so that whichever was due first goes first. Two ranges in turn give a group's jobs while it has both, TURN of the front and OTHERS
-- of the order pages: G_TURN counts those of the front up to TURN, then those of the pages.
-- An earlier version wrote <group>/<id>: those are taken in as due before all others.
work.TURN, work.OTHERS = 48, 16

-- to_front gives a job back to the front of its group; since is when it was due, 21 digits (nil: now).
local function to_front(g, jobkey, since)
  redis.call('ZADD', K.front, 0, '+' .. g[G_KEY] .. ' ' .. (since or string.format('%016.0f00000', now)) .. ' ' .. string.sub(jobkey, #g[G_KEY] + 2))
  g[G_FRONT] = g[G_FRONT] + 1
  shard.pending = shard.pending + 1
end

-- work.adopt takes in up to n members of an earlier version, from first to last, and returns how many.
function work.adopt(first, last, n)
  local list = redis.call('ZRANGEBYLEX', K.front, first, last, 'LIMIT', 0, n)
  for _, member in ipairs(list) do
    redis.call('ZREM', K.front, member)
    redis.call('ZADD', K.front, 0, '+' .. string.gsub(member, '/', ' 000000000000000000000 ', 1))
  end
  return #list
end

-- work.fronts gives up to n members of a group's front, in their order.
function work.fronts(g, n)
  local list = redis.call('ZRANGEBYLEX', K.front, '[+' .. g[G_KEY] .. ' ', '(+' .. g[G_KEY] .. '!', 'LIMIT', 0, n)
  if list[1] or work.adopt('[' .. g[G_KEY] .. '/', '(' .. g[G_KEY] .. '0', n) == 0 then return list end
  return work.fronts(g, n)
end

-- work.job_of is the job of a member of the front.
function work.job_of(g, member)
  return g[G_KEY] .. '/' .. string.sub(member, #g[G_KEY] + 25)
end

-- lasted returns what an outcome says of its last run and its age.
function work.lasted(run, created)
  local took, age = run.took or 0, created and ms() - created or -1
  return took > 0 and (took - took % 1000) / 1000 or -1, created and age < 0 and 0 or age
end

-- work.too_many reports whether as many jobs of a group have failed as stop it. Where more jobs may come, a share is one of a thousand
-- jobs at least.
function work.too_many(g)
  local failed, of = g[G_FAIL] + g[G_DEAD], g[G_SEALED] == 1 and g[G_TOTAL] or math.max(1000, g[G_TOTAL])
  return g[G_STOP_COUNT] > 0 and failed >= g[G_STOP_COUNT] or g[G_STOP_SHARE] > 0 and failed * 100000 >= g[G_STOP_SHARE] * of
end

-- work.stop pauses a group whose jobs have failed so often, unless it was resumed beyond that.
function work.stop(g)
  if g[G_STOPPED] == 0 and g[G_PAUSED] == 0 and work.too_many(g) then
    g[G_PAUSED], g[G_STOPPED] = 1, 1
    unplace(g)
  end
end

-- work.log puts a job's outcome into its group's log, unless it is counted and not kept (G_RESULTS): then nothing stays of it or,
-- while jobs may be added, that there was one.
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

-- finish gives a job its outcome: the record, the log of outcomes, the counts.
local function finish(g, t, jobkey, record, count, run)
  over[#over + 1] = jobkey
  work.log(g, jobkey, record, count)
  local before = ended(g)
  if #record > g[G_WIDEST] then raise(g, G_WIDEST, before == 0, #record) end
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
    plan(g, now) -- a reducer takes outcomes in while the group runs, some thousand at a time
  end
end

local function cancel_job(g, t, jobkey)
  finish(g, t, jobkey, 'C0 ' .. int(ms()) .. '\n', G_CANC)
end

-- work.called_off says whether a job that has left the leases is cancelled, with its group or alone, and forgets the mark of one that is alone.
function work.called_off(g, jobkey)
  local alone = g[G_CALLED_OFF] > 0 and redis.call('ZREM', K.aside, 'c' .. jobkey) == 1
  if alone then g[G_CALLED_OFF] = g[G_CALLED_OFF] - 1 end
  return alone or g[G_STATUS] == CANCELLED
end

-- bury ends a job that may be redriven: it keeps its payload. state is F (failed) or D (dead), which it is without.
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
  finish(g, t, jobkey, string.format('%s%d %d %s %d %s %d %d %d\n', state or 'D', run.tries, ms(), code, cost or 1, kind or '-', #text,
    work.lasted(run, created)) .. text .. (payload or ''), failed and G_FAIL or G_DEAD, run)
end

-- tenant_rate is what a tenant may start in a second, in thousandths: by its own limit, or as its share in whole jobs, at least 1.
local function tenant_rate(t)
  local own = t[T_RATE] > 0 and t[T_RATE] or set.per_tenant
  if own > 0 then return own end
  return math.max(1, math.floor(set.global / 1000 / math.max(1, redis.call('ZCARD', K.busy)))) * 1000
end

-- backoff is how long a refused job of the tenant waits.
local function backoff(t)
  local wait = set.base
  if set.congestion == 1 then
    wait = math.min(set.max, set.base + math.floor(count_refused('N' .. t[T_NAME]) * 1000 / tenant_rate(t)) * 1000000)
    shard.spins = shard.spins + math.max(0, math.floor(wait / set.base) - 1)
  end
  t[T_BACKOFF] = wait
  return wait
end

-- The limiters that a start has to pass: global, tenant, group; nil where there is none. Their state remembers the rate that
-- it was kept at, and by which limiter, so that a change of either, by an operator, a new configuration or a process that has
-- another one, lends and forgives nothing.
local function brought(rate, burst, at, level, was, by)
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

-- work.keeps says whether a limiter's state is to be written back: not one that was adopted, and from which nothing was taken.
function work.keeps(b) return b and not (b.at == b.adopted_at and b.level == b.adopted_level) end

local function global_limiter()
  return brought(set.global, set.burst, shard.at, shard.level, shard.rate, shard.limiter)
end

local function keep_global(b)
  if not work.keeps(b) then return end
  shard.at, shard.level, shard.rate, shard.limiter = b.at, b.level, b.rate > 0 and b.rate or shard.rate, set.by
end

local function tenant_limiter(t, share)
  local rate = t[T_RATE] > 0 and t[T_RATE] or set.per_tenant
  if rate == 0 and share then rate = tenant_rate(t) end
  if rate == 0 then return nil end
  return brought(rate, set.burst, t[T_AT], t[T_FRAC], t[T_RATED], t[T_LIMITER])
end

local function group_limiter(g)
  if g[G_RATE] == 0 then return nil end
  return brought(g[G_RATE], 0, g[G_AT], g[G_FRAC], g[G_RATED], g[G_LIMITER])
end

-- keep_tenant and keep_group write a limiter's state back.
local function keep_tenant(t, b)
  if work.keeps(b) then t[T_AT], t[T_FRAC], t[T_RATED], t[T_LIMITER] = b.at, b.level, b.rate > 0 and b.rate or t[T_RATED], set.by end
end

local function keep_group(g, b)
  if work.keeps(b) then g[G_AT], g[G_FRAC], g[G_RATED], g[G_LIMITER] = b.at, b.level, b.rate, set.by end
end

-- peek gives up to n jobs of a group in their order, of which from_front come from the front, without taking them; order jobs come
-- from one page, and not beyond their turn, so there may be more. ends has the members of the front, and where order jobs end.
local function peek(g, n)
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

-- within returns how many of the jobs have records of at most room bytes together.
local function within(g, list, room)
  local n = #list
  if g[G_LARGEST] > 0 and n * g[G_LARGEST] <= room then return n end
  for i = 1, n do
    room = room - redis.call('HSTRLEN', K.jobs, list[i])
    if room < 0 then return i - 1 end
  end
  return n
end

-- pop takes the first n of what peek gave out of the group's line.
local function pop(g, n, list, from_front, ends, size)
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

-- start leases jobs: runs and lease for each, which work.save_started writes, and the lines of the reply that Leased is read from.
work.runs, work.leases = {}, {}
function work.save_started()
  write('HSET', K.runs, work.runs)
  write('ZADD', K.leases, work.leases)
end

local function start(g, t, reply, jobs, owner)
  if not jobs[1] then return end
  local runs, leases, till = work.runs, work.leases, int(now + set.lease)
  for _, j in ipairs(jobs) do
    -- Not below the time in µs: a store that has lost its last writes gives out no fence twice.
    shard.fence = math.max(shard.fence + 1, now)
    j.run.fence = shard.fence
    if j.created then j.run.created, j.run.kind = j.created, j.kind ~= '' and j.kind or '-' end
    local fence = string.format('%d', shard.fence)
    local n = #runs
    runs[n + 1], runs[n + 2] = j.key, write_run(j.run, j.mark and owner .. ' ' .. j.mark or owner, fence)
    leases[n + 1], leases[n + 2] = till, j.key
    n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = j.key, g[G_OF] == 1 and g[G_ID] .. '*' or g[G_ID], g[G_TENANT], j.kind ~= '' and j.kind or g[G_TYPE]
    reply[n + 5], reply[n + 6], reply[n + 7], reply[n + 8] = j.run.tries + 1, j.run.crashes, fence, j.cost
    reply[n + 9] = j.payload
  end
  g[G_INFLIGHT] = g[G_INFLIGHT] + #jobs
  t[T_INFLIGHT] = t[T_INFLIGHT] + #jobs
  t[T_SERVED] = t[T_SERVED] + #jobs
  shard.inflight = shard.inflight + #jobs
  shard.starts = shard.starts + #jobs
  if g[G_STARTED] == 0 then g[G_STARTED], g[G_W_AT], g[G_P_AT] = now, now, now end
  if g[G_STATUS] == DISPATCHED then move(g, RUNNING) end
end

-- work.stray removes a place of the fair queue that contradicts the records, as half a transaction may leave it after a crash: it would
-- stop everybody behind it. work.strays counts them.
work.strays = 0
function work.stray(key, member)
  redis.call('ZREM', key, member)
  work.strays = work.strays + 1
end

-- reorder follows a change of policy: what is in line by the old one is gated for a moment, and with the line empty the mode
-- changes: once in ORDERED µs, because processes with different policies, as in a rolling deploy, would otherwise take the line from
-- one another and nothing would start. It says whether the line is in an order; work.reordered is 1 where this call has changed it.
work.ORDERED, work.reordered = 60000000, 0
local function reorder()
  if wished == shard.mode or shard.ordered > 0 and now - shard.ordered < work.ORDERED then return true end
  for i = 1, 3 do
    local line = shard.mode == 3 and K.levels[i] or K.lines
    for _, member in ipairs(redis.call('ZRANGE', line, 0, 99)) do
      local g = bulk_group(string.match(member, '[^/]+$'))
      if g and g[G_QUEUED] == 1 then gate_group(g, now + 1000000, 'mode') else work.stray(line, member) end
    end
  end
  if shard.queued > 0 then return false end
  shard.mode, shard.ordered, work.reordered = wished, now, 1
  set.policy, set.strict = wished == 3 and 'score' or 'fair', wished == 2 and 1 or 0
  local v = math.max(shard.v1, shard.v2, shard.v3)
  shard.v1, shard.v2, shard.v3 = v, v, v
  return true
end

-- whose_turn gives the group whose turn it is, its tenant and level, and what the fair queue calls its tenant, with its tag.
local function whose_turn()
  if set.policy == 'score' then
    for level = 1, 3 do
      -- Behind groups of tenants whose concurrency is used up; 500 of them at most, until one of their jobs ends.
      for page = 0, 10 do
        local list = redis.call('ZREVRANGE', K.levels[level], page == 0 and 0 or page * 50 - 49, page * 50)
        for _, gkey in ipairs(list) do
          local g = bulk_group(gkey)
          if not g or g[G_QUEUED] == 0 or g[G_LEVEL] ~= level then
            work.stray(K.levels[level], gkey)
          elseif bulk_tenant(g[G_TENANT])[T_FULL] == 0 then
            return g, bulk_tenant(g[G_TENANT]), level
          end
        end
        if #list < (page == 0 and 1 or 50) then break end
      end
    end
    return nil
  end
  for _ = 1, 100 do
    local flow, tag, level
    for l = 1, 3 do
      local f, at = fair.first(K.levels[l])
      if f and (not tag or at < tag) then flow, tag, level = f, at, l end
      if flow and set.strict == 1 then break end
    end
    if not flow then return nil end
    local name = string.sub(flow, 3)
    local prefix = level .. '/' .. name
    local line = redis.call('ZRANGEBYLEX', K.lines, '[' .. prefix .. '/', '(' .. prefix .. '0', 'LIMIT', 0, 1)[1]
    local g = line and bulk_group(string.match(line, '([^/]+)$'))
    if g and g[G_QUEUED] == 1 and line_of(g) == line then return g, bulk_tenant(name), level, flow, tag end
    work.stray(line and K.lines or K.levels[level], line or flow)
    if redis.call('HEXISTS', K.tenants, name) == 1 then
      bulk_tenant(name)[T_N1 - 1 + level] = redis.call('ZLEXCOUNT', K.lines, '[' .. prefix .. '/', '(' .. prefix .. '0')
    end
  end
end

-- expected returns how long a job of the group is likely to run: as its own did, or else its tenant's.
function work.expected(g, t)
  return g[G_EXPECT] > 0 and g[G_EXPECT] or t[T_EXPECT] > 0 and t[T_EXPECT] or work.FIRST
end

-- outer_weight returns the weight among tenants of what a group runs.
function work.outer_weight(g, t)
  return math.max(10, t[T_WEIGHT] * (g[G_SHARE] > 0 and g[G_SHARE] or g[G_WEIGHT]) / 1000) * fair.LEVELS[g[G_LEVEL]]
end

-- move_on moves a group on among its tenant's groups.
function work.move_on(g, cost)
  cost, g[G_LAG] = cost + g[G_LAG] / work.UNIT, 0
  local queued = g[G_QUEUED] == 1
  if queued then redis.call('ZREM', K.lines, line_of(g)) end
  g[G_TAG] = math.max(0, g[G_TAG] + fair.charge(cost, inner_weight(g) * fair.boost(g[G_SEALED] == 1 and g[G_TOTAL] or 0, ended(g) + g[G_INFLIGHT])))
  if queued then redis.call('ZADD', K.lines, 0, line_of(g)) end
end

-- charge_turn moves the tenant on among tenants, and the group among its tenant's groups, by what they were given: n jobs.
local function charge_turn(g, t, level, flow, tag, cost, n)
  if not flow then return end
  local v = vname(level)
  shard[v] = math.max(1, shard[v], tag) -- not 0: a level in use
  local given = cost
  if work.by_time then
    given = n * work.expected(g, t)
    g[G_CHARGED] = g[G_CHARGED] + given
    cost, g[G_DUE] = (given + g[G_DUE]) / work.UNIT, 0
  end
  t[T_WORK] = t[T_WORK] + given
  t[T_U1 - 1 + level] = fair.advance(K.levels[level], flow, tag, cost, work.outer_weight(g, t))
  local inner = T_V1 - 1 + level
  t[inner] = math.max(t[inner], g[G_TAG])
  work.move_on(g, cost)
end

-- release takes a job out of flight that ran for took µs; nil: nobody knows, and it keeps its charge.
function work.release(g, t, took)
  local charge, running = g[G_CHARGED], g[G_INFLIGHT]
  if running > 1 then charge = (charge - charge % running) / running end
  g[G_CHARGED] = g[G_CHARGED] - charge
  if took and work.by_time then
    g[G_DUE], t[T_WORK] = g[G_DUE] + took - charge, t[T_WORK] + took - charge
  end
  g[G_INFLIGHT], t[T_INFLIGHT], shard.inflight = running - 1, t[T_INFLIGHT] - 1, shard.inflight - 1
  if t[T_FULL] == 1 then fill(t) end
end

-- learn takes a run time into what is expected: an eighth of it in the group, a part of 32 in the tenant. A time is at least 1,
-- and what is expected remains so.
function work.learn(g, t, took)
  local own, all = g[G_EXPECT], t[T_EXPECT]
  local by, by_all = (took - own) / 8 + 0.5, (took - all) / 32 + 0.5
  g[G_EXPECT] = own == 0 and took or own + by - by % 1
  t[T_EXPECT] = all == 0 and took or all + by_all - by_all % 1
end

-- settle moves tags by what is due.
function work.settle(g)
  local due = g[G_DUE]
  if due == 0 or due < work.SLACK and due > -work.SLACK and (g[G_QUEUED] == 1 or g[G_INFLIGHT] > 0) then return end
  g[G_DUE] = 0
  if not work.by_time then return end
  local t, level, cost = bulk_tenant(g[G_TENANT]), g[G_LEVEL], due / work.UNIT
  if g[G_QUEUED] == 1 and t[T_N1 - 1 + level] == 1 then
    g[G_LAG] = g[G_LAG] + due -- nobody else is in that line: its next visit takes it along
  else
    work.move_on(g, cost)
  end
  local flow, u, charge = flow_name(level, g[G_TENANT]), T_U1 - 1 + level, fair.charge(cost, work.outer_weight(g, t))
  local tag = fair.settle(K.levels[level], flow, charge)
  if tag then
    t[u] = tag
    return
  end
  local last = redis.call('ZSCORE', K.idle, flow)
  t[u] = math.max(0, (last and tonumber(last) or t[u]) + charge)
  if t[u] > shard[vname(level)] then
    redis.call('ZADD', K.idle, int(t[u]), flow)
  elseif last then
    redis.call('ZREM', K.idle, flow)
  end
end

-- forget_idle drops last tags that lie behind the virtual time; with strict, behind that of every level in use.
local function forget_idle()
  if set.policy == 'score' then return end
  local v = shard.v1
  if set.strict == 1 then
    for _, other in ipairs({ shard.v2, shard.v3 }) do
      if other > 0 and (v == 0 or other < v) then v = other end
    end
  end
  fair.forget(K.idle, v)
end
