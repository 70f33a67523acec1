#!lua flags=allow-oom
-- ready_fill: classic pipeline: pulls jobs from the fair queue; jobs that the rate admits go to READY, the others wait one by one.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, want (free workers), batch (jobs to try), types (words; empty: every type), type_limits (as of jobs_pull)
-- RETURNS: {fetched, to READY, refused, µs until there may be more (0: not before an event), 1 if this has changed the order of the fair queue, then for each refused job the µs that it waits}
-- INVARIANT: every job that leaves its queue is in READY or waits; READY holds no more jobs than free workers can start.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkturns, breakers, bulktypes

open_gates(200)
local room = math.min(tonumber(ARGV[3]), set.ready_max) - redis.call('LLEN', K.ready)
local batch = tonumber(ARGV[4])
local fetched, admitted, refused, waits = 0, 0, 0, {}
local global, settled = global_limiter(), follow_policy()
local kinds, mine = read_kinds(ARGV[5])
types.fetch_deferred(kinds, batch)
-- Groups that the default pipeline has blocked before the configuration changed.
types.wake_barred(mine)

while settled and admitted < room and fetched < batch do
  local g, t, level, flow, tag = whose_turn()
  if not g then break end
  local list, from_front, ends, size = peek_jobs(g, 1)
  local jobkey = list[1]
  if not jobkey then
    dequeue(g)
  else
    pop_jobs(g, 1, list, from_front, ends, size)
    fetched = fetched + 1
    local cost, kind, _, _, expires = read_pending(redis.call('HGET', K.jobs, jobkey))
    cost, kind = cost or 1, kind and kind ~= '' and kind or g[G_TYPE]
    local theirs, own, limit = tenant_limiter(t, true), group_limiter(g), types.limit_of(kind, g[G_TENANT], cost)
    if expires and now_ms() >= expires then
      wait_until(g, jobkey, now, 'S') -- the dispatcher ends it
    elseif mine and not mine[kind] then
      defer_job(g, jobkey, kind)
      wake_worker()
    elseif strategy.admits(global, cost) and strategy.admits(theirs, cost) and (not own or strategy.admits(own, cost))
      and not (limit and types.wait(limit, cost)) then
      strategy.take(global, cost)
      strategy.take(theirs, cost)
      if own then strategy.take(own, cost) end
      if limit then types.take(limit, cost) end
      redis.call('RPUSH', K.ready, jobkey)
      g[G_READY] = g[G_READY] + 1
      admitted = admitted + 1
    else
      local run = read_run(redis.call('HGET', K.runs, jobkey))
      if run.since == 0 then run.since = now_ms() end
      run.refusals = run.refusals + 1
      g[G_THROTTLES] = g[G_THROTTLES] + 1
      refused = refused + 1
      if now - run.since * 1000 > set.max_age then
        bury(g, t, jobkey, run, 'refused_too_long', 'no slot of the rate within congestion.max_age')
      else
        redis.call('HSET', K.runs, jobkey, write_run(run))
        local wait = backoff(t)
        waits[#waits + 1] = int(wait)
        wait_until(g, jobkey, now + wait, 'N')
      end
    end
    save_tenant_limiter(t, theirs)
    save_group_limiter(g, own)
    charge_turn(g, t, level, flow, tag, cost, 1)
    if not runnable(g) then dequeue(g) elseif set.policy == 'score' then requeue(g) end
    check_complete(g)
  end
end
save_global_limiter(global)
shard.taken = shard.taken + fetched
forget_idle()
local next_at = 0
local gate = redis.call('ZRANGE', K.gates, 0, 0, 'WITHSCORES')
if gate[1] then next_at = math.max(1, tonumber(gate[2]) - now) end
bulk_save()
return { fetched, admitted, refused, int(next_at), work.reordered, unpack(waits) }
