-- bulkqueue: the places of groups in the fair queue, and the gates that keep groups and tenants out of it.

-- may_queue reports whether a tenant takes turns: full 1 means that conc of its jobs are in flight, which keeps it out of the queue until one
-- of them ends.
local function may_queue(t) return t[T_GATE] == 0 and t[T_FULL] == 0 end

local function vname(level) return set.strict == 1 and 'v' .. level or 'v1' end
local function flow_name(level, tenant) return fair.PREFIX[level] .. tenant end

-- inner_weight returns a group's weight among its tenant's groups of one level.
local function inner_weight(g)
  return g[G_INNER] > 0 and g[G_WEIGHT] * fair.LEVELS[g[G_INNER]] / fair.LEVELS[2] or g[G_WEIGHT]
end

-- queue_member returns a group's member of K.lines: by level and tenant, then by tag. last_member keeps the last one, because a turn reads it
-- and then removes it.
local last_member = {}
local function queue_member(g)
  local tag, level = g[G_TAG], g[G_LEVEL]
  if last_member.g ~= g or last_member.tag ~= tag or last_member.level ~= level then
    last_member.g, last_member.tag, last_member.level = g, tag, level
    last_member.line = fair.PREFIX[level] .. g[G_TENANT] .. '/' .. string.format('%020d', tag) .. '/' .. g[G_KEY]
  end
  return last_member.line
end

-- timing has the functions about a group's own times.
local timing = {}

-- timing.offset returns the offset of a time zone at a time (s), and when it changed to that (0: before what is known). changes has the times of
-- changes and the offsets from then on, after the first offset.
function timing.offset(changes, at)
  local offset, since = changes[1], 0
  for i = 2, #changes, 2 do
    if changes[i] > at then break end
    since, offset = changes[i], changes[i + 1]
  end
  return offset, since
end

-- timing.quiet_until returns the end (µs) of the quiet hours that it is now; nil where it is none.
function timing.quiet_until(words)
  local h1, m1, h2, m2, rest = string.match(words, '^(%d+):(%d+) (%d+):(%d+) %S+ (.*)$')
  local from, to, changes = (h1 * 60 + m1) * 60, (h2 * 60 + m2) * 60, {}
  for word in string.gmatch(rest, '%S+') do changes[#changes + 1] = tonumber(word) end
  local second = math.floor(now / 1000000)
  local offset = timing.offset(changes, second)
  local clock = (second + offset) % 86400
  local function outside(shown) return from < to and (shown < from or shown >= to) or from > to and shown >= to and shown < from end
  if outside(clock) then return nil end
  local till = second + (to - clock) % 86400
  -- Clocks may change until then. They may skip the end, or go back to before the beginning; an end that occurs twice counts the second time.
  local later, since = timing.offset(changes, till)
  if later ~= offset then till = outside((since + later) % 86400) and since or math.max(till + offset - later, since) end
  return math.max(till, second + 1) * 1000000
end

-- timing.closed returns until when a group's own times keep its jobs from starting, and which of them does (the value of G_WHY); nil where none does.
function timing.closed(g)
  if g[G_START_AT] > now then return g[G_START_AT], 'start' end
  local till = g[G_QUIET] ~= 0 and timing.quiet_until(g[G_QUIET])
  if till then return till, 'quiet' end
end

-- runnable reports whether a job of the group may start, apart from limits.
local function runnable(g)
  return g[G_PAUSED] == 0 and g[G_GATE] == 0 and g[G_EXPIRED] == 0 and g[G_WAITS] == 0 and g[G_BAR] == 0 and g[G_STATUS] <= RUNNING and (g[G_SEALED] == 1 or g[G_HELD] == 0)
    and (g[G_FRONT] > 0 or g[G_TAKEN] < g[G_ADDED]) and (g[G_CONC] == 0 or g[G_INFLIGHT] + g[G_READY] < parts.slots_of(g))
end

-- dequeue removes a group from the fair queue.
local function dequeue(g)
  if g[G_QUEUED] == 0 then return end
  g[G_QUEUED] = 0
  shard.queued = shard.queued - 1
  if set.policy == 'score' then
    redis.call('ZREM', K.levels[g[G_LEVEL]], g[G_KEY])
    return
  end
  local t = bulk_tenant(g[G_TENANT])
  redis.call('ZREM', K.lines, queue_member(g))
  local n = T_N1 - 1 + g[G_LEVEL]
  t[n] = t[n] - 1
  if t[n] == 0 and may_queue(t) then
    fair.leave(K.levels[g[G_LEVEL]], K.idle, shard[vname(g[G_LEVEL])], flow_name(g[G_LEVEL], g[G_TENANT]))
  end
end

-- requeue adds a group to the fair queue or removes it, as its state requires.
local function requeue(g)
  if g[G_START_AT] > now or g[G_QUIET] ~= 0 then timing.close(g) end
  if not runnable(g) then
    dequeue(g)
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
  redis.call('ZADD', K.lines, 0, queue_member(g))
  t[n] = t[n] + 1
  if t[n] == 1 and may_queue(t) then
    fair.enter(K.levels[g[G_LEVEL]], K.idle, shard[vname(g[G_LEVEL])], flow_name(g[G_LEVEL], g[G_TENANT]))
  end
end

-- types.bar blocks a group whose jobs are all of one type until the type's limits let one start. Meanwhile G_BAR is its member of K.aside:
-- w<type> and its queue_member. Of the blocked groups of a type, the first of each tenant is tried.
function types.bar(g, kind)
  dequeue(g)
  g[G_BAR] = 'w' .. kind .. ' ' .. queue_member(g)
  shard.barred = shard.barred + 1
  redis.call('ZADD', K.aside, 0, g[G_BAR])
end

function types.unbar(g)
  if g[G_BAR] == 0 then return end
  redis.call('ZREM', K.aside, g[G_BAR])
  g[G_BAR], shard.barred = 0, shard.barred - 1
end

-- gate_group keeps a group out of the fair queue until a time; a later call may only prolong it. why is busy where its downstream asked for the
-- pause: no change of a rate shortens that.
local function gate_group(g, till, why)
  if why == 'busy' then g[G_BUSY] = math.max(g[G_BUSY], till) end
  if g[G_GATE] >= till then return end
  g[G_GATE], g[G_WHY] = till, why
  shard.spins = shard.spins + 1
  redis.call('ZADD', K.gates, int(till), 'g/' .. g[G_KEY])
  dequeue(g)
end

-- timing.close gates a group until its own times let its jobs start, and reports whether they do not yet.
function timing.close(g)
  local till, why = timing.closed(g)
  if till then gate_group(g, till, why) end
  return till ~= nil
end

-- timing.stops removes a group from the fair queue whose own times let none of its jobs start now, and reports whether it did.
function timing.stops(g)
  if g[G_EXPIRES] == 0 or now < g[G_EXPIRES] then return timing.close(g) end
  g[G_EXPIRED] = 1
  dequeue(g)
  return true
end

-- open_group opens a group's gate, or keeps it closed for as long as its own times or its downstream require.
local function open_group(g)
  if g[G_GATE] == 0 then return end
  local till, why = timing.closed(g)
  if g[G_BUSY] > math.max(now, till or 0) then till, why = g[G_BUSY], 'busy' end
  if till then
    g[G_GATE], g[G_WHY] = till, why
    redis.call('ZADD', K.gates, int(till), 'g/' .. g[G_KEY])
    return
  end
  g[G_GATE], g[G_WHY], g[G_BUSY] = 0, '', 0
  redis.call('ZREM', K.gates, 'g/' .. g[G_KEY])
  requeue(g)
end

-- dequeue_tenant and requeue_tenant remove a tenant with all its groups from the fair queue among tenants, and add it again.
local function dequeue_tenant(t)
  for level = 1, 3 do
    if t[T_N1 - 1 + level] > 0 then fair.leave(K.levels[level], K.idle, shard[vname(level)], flow_name(level, t[T_NAME])) end
  end
end

local function requeue_tenant(t)
  for level = 1, 3 do
    if t[T_N1 - 1 + level] > 0 then fair.enter(K.levels[level], K.idle, shard[vname(level)], flow_name(level, t[T_NAME])) end
  end
end

-- gate_tenant keeps all groups of a tenant out of the fair queue until a time.
local function gate_tenant(t, till)
  if may_queue(t) then dequeue_tenant(t) end
  t[T_GATE] = till
  shard.spins = shard.spins + 1
  redis.call('ZADD', K.gates, int(till), 't/' .. t[T_NAME])
end

local function open_tenant(t)
  if t[T_GATE] == 0 then return end
  t[T_GATE] = 0
  redis.call('ZREM', K.gates, 't/' .. t[T_NAME])
  if may_queue(t) then requeue_tenant(t) end
end

-- update_full removes a tenant from the fair queue when its concurrency is used up, and adds it again when it is not.
local function update_full(t)
  local full = t[T_CONC] > 0 and t[T_INFLIGHT] >= parts.slots(t) and 1 or 0
  if full == t[T_FULL] then return end
  if full == 1 then
    dequeue_tenant(t)
    t[T_FULL] = 1
  else
    t[T_FULL] = 0
    if may_queue(t) then requeue_tenant(t) end
    if shard.queued > 0 then wake_worker() end
  end
end

-- open_gates opens up to n gates that are due, and returns their number.
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
