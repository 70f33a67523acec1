#!lua
-- ready_fill: classic pipeline: pulls jobs from the fair queue; what the rate allows goes to READY, the rest waits one by one.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy
-- ARGV: now, settings, batch
-- RETURNS: {fetched, to READY, refused, µs until there may be more (0: only an event brings it)}
-- INVARIANT: every job that leaves its line is in READY or waits; READY never grows over its bound.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs

open_gates(200)
local room = math.min(tonumber(ARGV[3]), set.ready_max - redis.call('LLEN', K.ready))
local fetched, admitted, refused = 0, 0, 0
local global = global_limiter()

local function first()
  if set.policy == 'score' then
    for level = 1, 3 do
      local gkey = redis.call('ZREVRANGE', K.levels[level], 0, 0)[1]
      if gkey then return bulk_group(gkey), level end
    end
    return nil
  end
  local flow, tag, level
  for l = 1, 3 do
    local f, at = fair.first(K.levels[l])
    if f and (not tag or at < tag) then flow, tag, level = f, at, l end
    if flow and set.strict == 1 then break end
  end
  if not flow then return nil end
  local prefix = level .. '/' .. string.sub(flow, 3)
  local line = redis.call('ZRANGEBYLEX', K.lines, '[' .. prefix .. '/', '(' .. prefix .. '0', 'LIMIT', 0, 1)[1]
  return bulk_group(string.match(line, '([^/]+)$')), level, flow, tag
end

while fetched < room do
  local g, level, flow, tag = first()
  if not g then break end
  local t = bulk_tenant(g.tenant)
  local list, from_front, ends, size = peek(g, 1)
  local jobkey = list[1]
  if not jobkey then
    unplace(g)
  else
    pop(g, 1, list, from_front, ends, size)
    fetched = fetched + 1
    local cost = read_pending(redis.call('HGET', K.jobs, jobkey)) or 1
    local theirs = tenant_limiter(t, true)
    if strategy.admits(global, cost) and strategy.admits(theirs, cost) then
      strategy.take(global, cost)
      strategy.take(theirs, cost)
      redis.call('RPUSH', K.ready, jobkey)
      g.ready = g.ready + 1
      admitted = admitted + 1
    else
      local run = read_run(redis.call('HGET', K.runs, jobkey))
      if run.since == 0 then run.since = ms() end
      run.refusals = run.refusals + 1
      g.throttles = g.throttles + 1
      refused = refused + 1
      if now - run.since * 1000 > set.max_age then
        bury(g, t, jobkey, run, 'refused_too_long', 'no slot of the rate within congestion.max_age')
      else
        redis.call('HSET', K.runs, jobkey, write_run(run))
        wait_until(g, jobkey, now + backoff(t), 'N')
      end
    end
    t.at, t.frac = theirs.at, theirs.level
    if flow then
      shard[vname(level)] = math.max(shard[vname(level)], tag)
      fair.advance(K.levels[level], flow, tag, cost, math.max(10, t.weight * g.weight / 1000) * fair.LEVELS[level])
      redis.call('ZREM', K.lines, line_of(g))
      local v = 'v' .. level
      t[v] = math.max(t[v], g.tag)
      g.tag = g.tag + fair.charge(cost, g.weight * fair.boost(g.sealed == 1 and g.total or 0, ended(g) + g.inflight))
      redis.call('ZADD', K.lines, 0, line_of(g))
    end
    if not runnable(g) then unplace(g) elseif set.policy == 'score' then place(g) end
    settle(g)
  end
end
shard.at, shard.level = global.at, global.level
shard.taken = shard.taken + fetched
local next_at = 0
local gate = redis.call('ZRANGE', K.gates, 0, 0, 'WITHSCORES')
if gate[1] then next_at = math.max(1, tonumber(gate[2]) - now) end
bulk_save()
return { fetched, admitted, refused, int(next_at) }
