-- bulkturns: whose turn it is in the fair queue, and what a turn is charged.

-- work.remove_orphan removes an entry of the fair queue that contradicts the records, as half a transaction may leave it after a crash: it would
-- block every entry behind it. work.orphans counts them.
work.orphans = 0
function work.remove_orphan(key, member)
  redis.call('ZREM', key, member)
  work.orphans = work.orphans + 1
end

-- follow_policy applies a change of policy: the groups that the old one has queued are gated for a second, and when the queue is empty the mode
-- changes. It changes at most once in ORDERED µs, because processes with different policies, as in a rolling deploy, would otherwise empty each
-- other's queue and nothing would start. follow_policy reports whether the queue is in one order; work.reordered is 1 where this call has changed the mode.
work.ORDERED, work.reordered = 60000000, 0
local function follow_policy()
  if wished == shard.mode or shard.ordered > 0 and now - shard.ordered < work.ORDERED then return true end
  for i = 1, 3 do
    local line = shard.mode == 3 and K.levels[i] or K.lines
    for _, member in ipairs(redis.call('ZRANGE', line, 0, 99)) do
      local g = bulk_group(string.match(member, '[^/]+$'))
      if g and g[G_QUEUED] == 1 then gate_group(g, now + 1000000, 'mode') else work.remove_orphan(line, member) end
    end
  end
  if shard.queued > 0 then return false end
  shard.mode, shard.ordered, work.reordered = wished, now, 1
  set.policy, set.strict = wished == 3 and 'score' or 'fair', wished == 2 and 1 or 0
  local v = math.max(shard.v1, shard.v2, shard.v3)
  shard.v1, shard.v2, shard.v3 = v, v, v
  return true
end

-- A pull defers the jobs of the fair queue that it cannot start (defer_job). So that other tenants do not wait for a long row of them, a call
-- defers FIRST_DEFERRED jobs in a row of the first flow (by score: group), half as many of each further one, at least LEAST_DEFERRED, and
-- MOST_DEFERRED in all. Then it passes the flow: it goes on with the next one. A call that has started nothing returns to the flows that it has
-- passed.
work.FIRST_DEFERRED, work.LEAST_DEFERRED, work.MOST_DEFERRED = 100, 4, 500
work.deferred = 0 -- jobs in this call
work.served = {} -- flows, or groups by score, of which this call has started jobs
-- begin_round makes every flow a flow that was not passed. passed has the number of passed flows of each level, which are the first ones of the
-- level; flows lists them; groups is the set of the passed groups by score. in_row is the number of jobs of a flow, or of a group by score, that
-- were deferred since the last one that started.
function work.begin_round(allowance)
  work.passes, work.allowance, work.in_row = 0, allowance, {}
  work.passed, work.flows, work.groups = { 0, 0, 0 }, { {}, {}, {} }, {}
  fair.empty = {}
end
work.begin_round(work.FIRST_DEFERRED)

-- work.may_defer returns how many more jobs of a flow, or of a group by score, this call may defer.
function work.may_defer(g, flow) return math.min(work.MOST_DEFERRED - work.deferred, work.allowance - (work.in_row[flow or g[G_KEY]] or 0)) end

function work.count_deferred(g, flow)
  work.deferred = work.deferred + 1
  work.in_row[flow or g[G_KEY]] = (work.in_row[flow or g[G_KEY]] or 0) + 1
end

function work.count_started(g, flow)
  work.in_row[flow or g[G_KEY]], work.served[flow or g[G_KEY]] = 0, true
end

-- work.ends_call reports whether the call ends at a flow instead of passing it. A flow of which this call has started jobs keeps its share, where
-- only MOST_DEFERRED keeps the call from finding more of them: the next call continues with it.
function work.ends_call(g, flow) return work.deferred >= work.MOST_DEFERRED and work.served[flow or g[G_KEY]] end

-- work.pass passes a flow whose turn started nothing and of which no more jobs may be deferred. A flow without queued jobs has left its level.
function work.pass(g, t, level, flow)
  if flow and (t[T_N1 - 1 + level] == 0 or not may_queue(t)) or not flow and g[G_QUEUED] == 0 then return end
  work.passes, work.allowance = work.passes + 1, math.max(work.LEAST_DEFERRED, math.floor(work.allowance / 2))
  if flow then
    work.passed[level] = work.passed[level] + 1
    work.flows[level][work.passed[level]] = flow
  else
    work.groups[g[G_KEY]] = true
  end
end

-- work.defer_more returns to the flows that were passed, and reports whether more of their jobs may be deferred.
function work.defer_more()
  if work.passes == 0 or work.deferred >= work.MOST_DEFERRED then return false end
  work.begin_round(work.MOST_DEFERRED)
  return true
end

-- work.end_round gives the passed flows no credit for the turns that others had meanwhile: they continue as flows that were idle.
function work.end_round()
  for level = 1, 3 do fair.catch_up(K.levels[level], shard[vname(level)], work.flows[level]) end
end

-- whose_turn returns the group whose turn it is, its tenant and level, and the tenant's flow in the fair queue with its tag. work.unfinished is
-- set where it has not looked at every group.
local function whose_turn()
  if set.policy == 'score' then
    for level = 1, 3 do
      -- Groups of tenants whose concurrency is used up are skipped, 500 at most, until one of their jobs ends.
      for page = 0, 10 do
        local list = redis.call('ZREVRANGE', K.levels[level], page == 0 and 0 or page * 50 - 49, page * 50)
        for _, gkey in ipairs(list) do
          local g = bulk_group(gkey)
          if not g or g[G_QUEUED] == 0 or g[G_LEVEL] ~= level then
            work.remove_orphan(K.levels[level], gkey)
          elseif bulk_tenant(g[G_TENANT])[T_FULL] == 0 and not work.groups[gkey] and not timing.stops(g) then
            return g, bulk_tenant(g[G_TENANT]), level
          end
        end
        if #list < (page == 0 and 1 or 50) then break end
      end
    end
    return nil
  end
  for _ = 1, 300 do
    local flow, tag, level
    for l = 1, 3 do
      local f, at = fair.first(K.levels[l], work.passed[l])
      if f and (not tag or at < tag) then flow, tag, level = f, at, l end
      if (flow or work.passed[l] > 0) and set.strict == 1 then break end
    end
    if not flow then return nil end
    local name = string.sub(flow, 3)
    local prefix = level .. '/' .. name
    local line = redis.call('ZRANGEBYLEX', K.lines, '[' .. prefix .. '/', '(' .. prefix .. '0', 'LIMIT', 0, 1)[1]
    local g = line and bulk_group(string.match(line, '([^/]+)$'))
    if g and g[G_QUEUED] == 1 and queue_member(g) == line then
      if not timing.stops(g) then return g, bulk_tenant(name), level, flow, tag end
    else
      work.remove_orphan(line and K.lines or K.levels[level], line or flow)
      if redis.call('HEXISTS', K.tenants, name) == 1 then
        bulk_tenant(name)[T_N1 - 1 + level] = redis.call('ZLEXCOUNT', K.lines, '[' .. prefix .. '/', '(' .. prefix .. '0')
      end
    end
  end
  work.unfinished = true
end

-- work.expected returns the expected run time of a job of the group, from the group's runs or else its tenant's.
function work.expected(g, t)
  return g[G_EXPECT] > 0 and g[G_EXPECT] or t[T_EXPECT] > 0 and t[T_EXPECT] or work.FIRST
end

-- work.outer_weight returns the weight of a group's jobs among tenants.
function work.outer_weight(g, t)
  return math.max(10, t[T_WEIGHT] * (g[G_SHARE] > 0 and g[G_SHARE] or g[G_WEIGHT]) / 1000) * fair.LEVELS[g[G_LEVEL]]
end

-- move_on moves a group on among its tenant's groups.
function work.move_on(g, cost)
  cost, g[G_LAG] = cost + g[G_LAG] / work.UNIT, 0
  local queued = g[G_QUEUED] == 1
  if queued then redis.call('ZREM', K.lines, queue_member(g)) end
  g[G_TAG] = math.max(0, g[G_TAG] + fair.charge(cost, inner_weight(g) * fair.boost(g[G_SEALED] == 1 and g[G_TOTAL] or 0, ended(g) + g[G_INFLIGHT])))
  if queued then redis.call('ZADD', K.lines, 0, queue_member(g)) end
end

-- charge_turn charges a turn of n jobs: it moves the tenant on among tenants, and the group among its tenant's groups.
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

-- work.release takes a job out of flight that ran for took µs; nil: the time is unknown, and it keeps its charge.
function work.release(g, t, took)
  local charge, running = g[G_CHARGED], g[G_INFLIGHT]
  if running > 1 then charge = (charge - charge % running) / running end
  g[G_CHARGED] = g[G_CHARGED] - charge
  if took and work.by_time then
    g[G_DUE], t[T_WORK] = g[G_DUE] + took - charge, t[T_WORK] + took - charge
  end
  g[G_INFLIGHT], t[T_INFLIGHT], shard.inflight = running - 1, t[T_INFLIGHT] - 1, shard.inflight - 1
  if t[T_FULL] == 1 then update_full(t) end
end

-- work.learn adds a run time to the expected ones, with a weight of 1/8 in the group and 1/32 in the tenant. took is at least 1 µs, so that an
-- expected time never becomes 0, which means unknown.
function work.learn(g, t, took)
  local own, all = g[G_EXPECT], t[T_EXPECT]
  local by, by_all = (took - own) / 8 + 0.5, (took - all) / 32 + 0.5
  g[G_EXPECT] = own == 0 and took or own + by - by % 1
  t[T_EXPECT] = all == 0 and took or all + by_all - by_all % 1
end

-- work.settle_charge moves tags by the difference of charges and run times (G_DUE).
function work.settle_charge(g)
  local due = g[G_DUE]
  if due == 0 or due < work.SLACK and due > -work.SLACK and (g[G_QUEUED] == 1 or g[G_INFLIGHT] > 0) then return end
  g[G_DUE] = 0
  if not work.by_time then return end
  local t, level, cost = bulk_tenant(g[G_TENANT]), g[G_LEVEL], due / work.UNIT
  if g[G_QUEUED] == 1 and t[T_N1 - 1 + level] == 1 then
    g[G_LAG] = g[G_LAG] + due -- the only group in that queue: its next turn charges it
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

-- forget_idle drops the last tags of idle flows that are behind the virtual time; with strict, behind that of every level in use.
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
