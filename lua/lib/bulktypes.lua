-- bulktypes: the limits of job types, over all processes.
--
-- A pull passes the limits that its process is configured with, type_limits: <type> <rate> <concurrency> <batch> ..., 0 for none. Limits that
-- operators set take precedence: live_types in the shard's state, <type> <rate> <concurrency> ..., - for as configured. A breaker that is open
-- (lib breakers) is a limit, too. Where a limit is used up, a group whose jobs are all of its type is blocked, and a job in a group of several
-- types is deferred. Neither is tried again before the limit lets a job start.

-- came has the jobs that this call has fetched from the deferred ones and that are in the fair queue. foreign: this pull met jobs of types that its process
-- does not run; spent: a processor's batch is used up; startable: a type with jobs may start one now.
types.limits, types.came, types.foreign, types.spent, types.startable = {}, {}, false, false, false
for kind, rate, most, batch in string.gmatch(ARGV[6], '(%S+) (%d+) (%d+) (%d+)') do
  types.limits[kind] = { kind = kind, rate = tonumber(rate), most = tonumber(most), batch = tonumber(batch), given = 0 }
end
for kind, rate, most in string.gmatch(set.live_types, '(%S+) (%S+) (%S+)') do
  local l = types.limits[kind] or { kind = kind, rate = 0, most = 0, batch = 0, given = 0 }
  l.rate, l.most = tonumber(rate) or l.rate, tonumber(most) or l.most
  types.limits[kind] = l
end

-- types.divide replaces the limits by this shard's lease or part of them; whole and whole_most keep the limits.
function types.divide()
  for kind, l in pairs(types.limits) do
    l.whole, l.whole_most = l.rate, l.most
    local rate, burst, most, of_rate, of_most = string.match(redis.call('HGET', K.state, 'share:' .. kind) or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
    if rate and tonumber(of_rate) == l.whole and tonumber(of_most) == l.whole_most then
      l.rate, l.burst = parts.at_most(tonumber(rate), tonumber(burst), l.whole, 0)
      l.most = tonumber(most)
    else
      l.rate, l.burst = parts.rate(l.whole, 0)
      l.most = parts.count(l.whole_most)
    end
    -- closed: this shard has nothing of a limit, and no job of the type may start here.
    l.closed = l.whole > 0 and l.rate == 0 or l.whole_most > 0 and l.most == 0
  end
end
if set.shards > 1 then types.divide() end

-- types.limit returns the limits of a type, or of the name of a breaker, at now; nil where it has none.
function types.limit(kind)
  local l, open = types.limits[kind], types.tripped(kind)
  if open then
    if not l then
      l = { kind = kind, rate = 0, most = 0, batch = 0, given = 0, use = {} }
      types.limits[kind] = l
    end
    l.breaker = open
  end
  if l and not l.use then
    l.use = types.use(kind)
    l.use.most = l.most
    if l.rate > 0 then
      l.meter = refilled(l.rate, l.burst or 0, l.use.at, l.use.level, l.use.rate, l.use.limiter)
      if set.shards > 1 then l.meter.whole = default_burst(l.whole, 0) end
    end
  end
  return l
end

-- types.limit_of returns the limits that hold a job of that cost back, or else all limits that it counts towards.
function types.limit_of(kind, tenant, cost)
  local l = types.limit(kind)
  if shard.tripped == 0 then return l end
  local pair = types.limit(kind .. '@' .. tenant)
  if pair and (not l or types.wait(pair, cost)) then return pair end
  if l then l.also = pair end
  return l
end

-- types.names adds to the types of a process the names of breakers under which jobs of them are deferred.
function types.names(kinds)
  if ARGV[5] == '' or shard.aside == 0 then return kinds end
  local list = {}
  for _, kind in ipairs(kinds) do
    list[#list + 1] = kind
    local at = '[t' .. kind .. '@'
    for _ = 1, 200 do
      local member = redis.call('ZRANGEBYLEX', K.aside, at, '(t' .. kind .. 'A', 'LIMIT', 0, 1)[1]
      if not member then break end
      list[#list + 1] = string.match(member, '^t(%S+) ')
      at = '(t' .. list[#list] .. '!'
    end
  end
  return list
end

-- types.wait returns for how many microseconds the limits start no job of that cost; nil: it may start, 0: until an event.
function types.wait(l, cost)
  local pause = l.breaker and types.pause(l.breaker)
  if pause then return pause end
  if l.closed then return 1000000 end
  if l.most > 0 and l.use.running >= l.most then return 0 end
  if l.meter and not strategy.admits(l.meter, cost) then return math.max(1, strategy.wait(l.meter, cost)) end
  if l.batch > 0 and l.given >= l.batch then return 1 end
  return nil
end

-- types.may_run reports whether the concurrency of a type has room for another job.
function types.may_run(kind)
  local l = types.limit(kind)
  return not l or l.most == 0 or l.use.running < l.most
end

-- types.refuses reports whether no job of that cost may start now, and keeps the least cost that was refused.
function types.refuses(l, cost)
  if not types.wait(l, cost) then return false end
  l.met = math.min(l.met or cost, cost)
  return true
end

-- types.run counts a run towards the concurrency of its type, and returns the mark for its record.
function types.run(l)
  if not l or l.most == 0 then return nil end
  l.use.running, shard.marked = l.use.running + 1, shard.marked + 1
  return l.kind
end

function types.take(l, cost)
  l.given = l.given + 1
  if l.breaker then types.probe(l.breaker) end
  if l.also then types.take(l.also, cost) end
  if l.meter then
    strategy.take(l.meter, cost)
    l.use.at, l.use.level, l.use.rate, l.use.limiter = l.meter.at, l.meter.level, l.meter.rate, set.by
  end
end

-- types.room returns how many of up to most jobs of a type may start now.
function types.room(kind, most)
  local l = types.limit(kind)
  if not l then return most end
  if l.closed then return 0 end
  if l.breaker then most = types.pause(l.breaker) and 0 or math.min(most, l.breaker.allow - l.breaker.given) end
  if l.meter then most = math.min(most, strategy.available(l.meter)) end
  if l.most > 0 then most = math.min(most, l.most - l.use.running) end
  if l.batch > 0 then most = math.min(most, l.batch - l.given) end
  return math.max(0, most)
end

-- types.fetch_deferred moves deferred jobs of the process's types to the front of their groups: as many as it wants and the type's limits allow,
-- of up to twenty groups of each type, in turns. It returns the number of those whose group is in the fair queue.
function types.fetch_deferred(kinds, most)
  local moved = 0
  if shard.aside == 0 then return 0 end
  for _, kind in ipairs(types.names(kinds)) do
    local want = types.room(kind, most)
    local groups_at_most = math.min(20, want)
    local first, last = deferred_range('t' .. kind)
    local turn = redis.call('HGET', K.state, 'aside_turn') or ''
    local list = want > 0 and redis.call('ZRANGEBYLEX', K.aside, '(t' .. kind .. ' ' .. turn, last, 'LIMIT', 0, groups_at_most) or {}
    if want > 0 and #list < groups_at_most then
      for _, member in ipairs(redis.call('ZRANGEBYLEX', K.aside, first, '[t' .. kind .. ' ' .. turn, 'LIMIT', 0, groups_at_most - #list)) do list[#list + 1] = member end
    end
    for _, member in ipairs(list) do
      local gkey = string.match(member, ' (.+)$')
      local g = bulk_group(gkey)
      if g[G_STATUS] ~= CANCELLED then
        local jobs, since = take_deferred(g, kind, deferred_members(gkey, kind, math.ceil(want / #list)))
        for i, jobkey in ipairs(jobs) do to_front(g, jobkey, since[i]) end
        requeue(g)
        -- Otherwise the group or its tenant is full or gated: none of its jobs may start now.
        if g[G_QUEUED] == 1 and may_queue(bulk_tenant(g[G_TENANT])) then
          moved = moved + #jobs
          for _, jobkey in ipairs(jobs) do types.came[jobkey] = true end
        end
      end
      redis.call('HSET', K.state, 'aside_turn', gkey)
    end
  end
  return moved
end

-- types.wake_barred queues the first blocked group of each tenant, of up to thirty tenants in turn, where its type may start jobs again. mine has
-- the process's types, nil: all. It returns the number of groups.
function types.wake_barred(mine)
  local woken, at = 0, '[w'
  while shard.barred > 0 do
    local member = redis.call('ZRANGEBYLEX', K.aside, at, '(x', 'LIMIT', 0, 1)[1]
    if not member then break end
    local kind = string.match(member, '^w(%S+) ')
    at = '(w' .. kind .. '!'
    local l = types.limit(kind)
    if (not mine or mine[types.type_of(kind)]) and not (l and types.wait(l, l.met or 1)) then
      local words = 'w' .. kind .. ' '
      local turn, wrapped, stop = redis.call('HGET', K.state, 'wake_turn') or '', false, at
      local from, seen = '[' .. words .. turn .. '0', 0
      while seen < 30 do
        member = redis.call('ZRANGEBYLEX', K.aside, from, stop, 'LIMIT', 0, 1)[1]
        if member then
          seen = seen + 1
          turn = string.match(member, ' (%d/[^/]+)/')
          local gkey = string.match(member, '([^/]+)$')
          local g = bulk_group(gkey)
          if g and g[G_BAR] == member then
            types.unbar(g)
            requeue(g)
            woken = woken + 1
          else
            redis.call('ZREM', K.aside, member)
            shard.barred = shard.barred - 1
          end
          from = '[' .. words .. turn .. '0'
        elseif wrapped then
          break
        else
          -- From the beginning up to where this round began.
          wrapped, from, stop = true, '[' .. words, '(' .. words .. (redis.call('HGET', K.state, 'wake_turn') or '') .. '0'
        end
      end
      redis.call('HSET', K.state, 'wake_turn', turn)
    end
  end
  return woken
end

-- types.next returns in how many microseconds the first of the types with jobs may start one (nil: none by time), and whether one may now.
function types.next(kinds, mine)
  local soonest, open
  local function ask(kind)
    local l = types.limit(kind)
    local wait = l and types.wait(l, l.met or 1)
    if not wait then open = true end
    if wait and wait > 0 and (not soonest or wait < soonest) then soonest = wait end
  end
  local at = '[w'
  while shard.barred > 0 do
    local member = redis.call('ZRANGEBYLEX', K.aside, at, '(x', 'LIMIT', 0, 1)[1]
    if not member then break end
    local kind = string.match(member, '^w(%S+) ')
    at = '(w' .. kind .. '!'
    if not mine or mine[types.type_of(kind)] then ask(kind) end
  end
  -- A process that runs every type may have deferred the first jobs of one just now.
  for _, kind in ipairs(shard.aside == 0 and {} or mine and types.names(kinds) or deferred_kinds('')) do
    if redis.call('ZRANGEBYLEX', K.aside, '[t' .. kind .. ' ', '(t' .. kind .. '!', 'LIMIT', 0, 1)[1] then ask(kind) end
  end
  return soonest, open
end
