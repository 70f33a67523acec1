#!lua flags=allow-oom
-- ready_take: classic pipeline: leases jobs from READY; a job that was cancelled or paused meanwhile does not start.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, want, process, types (words; empty: every type), type_limits (as of jobs_pull)
-- RETURNS: as jobs_pull
-- INVARIANT: a cancelled job is not started, a paused one goes back; a job leaves READY and is leased in the same step.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkleases, breakers, bulktypes

local _, mine = read_kinds(ARGV[5])
local want, dropped, reply, taken, room = tonumber(ARGV[3]), 0, { 0, 0, 0, 0, 0, '' }, 0, STEP_BYTES
for _ = 1, want * 2 do
  if taken >= want or room <= 0 then break end
  local jobkey = redis.call('LPOP', K.ready)
  if not jobkey then break end
  local g = bulk_group(group_of(jobkey))
  local t = bulk_tenant(g[G_TENANT])
  g[G_READY] = g[G_READY] - 1
  if g[G_STATUS] == CANCELLED then
    cancel_job(g, t, jobkey)
    check_complete(g)
    dropped = dropped + 1
  elseif g[G_PAUSED] == 1 or timing.stops(g) or t[T_CONC] > 0 and t[T_INFLIGHT] >= t[T_CONC] then
    to_front(g, jobkey)
    requeue(g)
    dropped = dropped + 1
  else
    local record = redis.call('HGET', K.jobs, jobkey)
    local head = read_head(record)
    local kind = head and head.kind ~= '' and head.kind or g[G_TYPE]
    if head and head.expires and now_ms() >= head.expires then
      wait_until(g, jobkey, now, 'S') -- the dispatcher ends it
      dropped = dropped + 1
    elseif head and mine and not mine[kind] then
      defer_job(g, jobkey, kind) -- another process admitted it
      requeue(g)
      dropped = dropped + 1
      wake_worker()
    elseif head and not types.may_run(kind) then
      wait_until(g, jobkey, now + backoff(t), 'N') -- its concurrency was free when it was admitted
      requeue(g)
      dropped = dropped + 1
    elseif head then
      local run = redis.call('HGET', K.runs, jobkey)
      batches.start(g, t, reply, { { key = jobkey, run = run and read_run(run), record = record, head = head, mark = types.run(types.limit(kind)) } })
      taken, room = taken + 1, room - #record + head.length
      if t[T_CONC] > 0 then update_full(t) end
    end
  end
end
local more = 0
if (taken >= want or room <= 0) and redis.call('LLEN', K.ready) > 0 then
  more = 1
  wake_worker()
end
reply[2], reply[3], reply[5] = more, dropped, int(batches.lease(ARGV[4]))
batches.report(reply)
bulk_save()
return reply
