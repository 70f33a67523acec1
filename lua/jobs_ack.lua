#!lua flags=allow-oom
-- jobs_ack: ends runs of jobs: each with its verdict, all in one step.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links
-- ARGV: now, settings, id, fence, verdict, code, text, times (µs that the job ran, 0: unknown or not run; for a verdict other than done also the µs to wait and how many tries may fail; for a failure that counts for a breaker also down or try, ratio, window, probe), ...
-- RETURNS: for each run done, failed, retry, throttled (and the µs that it waits), returned, dead, cancelled or stale; then groups that ended as COMPLETED, as FAILED
-- INVARIANT: a failure that an open breaker explains spends no try; only the call that takes a job out of the leases with its fence decides its outcome (B3).
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkturns, breakers

local reply, touched, keys = {}, {}, {}
for i = 3, #ARGV, 6 do keys[#keys + 1] = ARGV[i] end
local runs = redis.call('HMGET', K.runs, unpack(keys))
local g, t, before = nil, nil, '/' -- of the previous job, which usually belongs to the same group
for i = 3, #ARGV, 6 do
  local jobkey, fence, verdict, code, text = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local took, after, retries, rule = tonumber(ARGV[i + 5]), 0, 0, ''
  if not took then
    took, after, retries, rule = string.match(ARGV[i + 5], '^(%d+) (%d+) (%d+)(.*)$')
    took, after, retries = tonumber(took), tonumber(after), tonumber(retries)
  end
  local stored = runs[(i + 3) / 6]
  local run = read_run(stored, fence)
  local state = 'stale'
  if stored and run.held and redis.call('ZREM', K.leases, jobkey) == 1 then
    if string.sub(jobkey, 1, #before) ~= before then
      g = bulk_group(group_of(jobkey))
      t, before = bulk_tenant(g[G_TENANT]), g[G_KEY] .. '/'
    end
    if took > 0 then work.learn(g, t, took) end
    work.release(g, t, (took > 0 or verdict == 'returned') and took or nil)
    touched[g[G_KEY]], run.took = g, took
    if shard.marked > 0 then types.release(stored) end
    if (shard.watched > 0 or rule ~= '') and types.ended(g, jobkey, run, verdict, rule, code) and verdict == 'retry' then verdict = 'throttled' end
    state = verdict
    local off = work.called_off(g, jobkey)
    if verdict == 'done' then
      run.tries = run.tries + 1
      end_job(g, t, jobkey, string.format('S%d %d %d %d ', run.tries, now_ms(), work.run_times(run, run.created)) .. (run.kind or '-') .. '\n' .. text, G_SUCC, run)
    elseif verdict == 'failed' then
      run.tries = run.tries + 1
      bury(g, t, jobkey, run, code, text, 'F')
    elseif verdict == 'dead' then
      run.tries = run.tries + 1
      bury(g, t, jobkey, run, code, text)
    elseif off then
      state = 'cancelled'
      cancel_job(g, t, jobkey)
    elseif verdict == 'returned' then
      redis.call('HSET', K.runs, jobkey, write_run(run))
      to_front(g, jobkey)
    elseif verdict == 'throttled' or verdict == 'held' then
      if run.since == 0 then run.since = now_ms() end
      run.refusals = run.refusals + 1
      g[G_THROTTLES] = g[G_THROTTLES] + 1
      if now - run.since * 1000 > set.max_age then
        state = 'dead'
        run.tries = run.tries + 1
        bury(g, t, jobkey, run, 'refused_too_long', text)
      else
        redis.call('HSET', K.runs, jobkey, write_run(run))
        local wait = after > 0 and after or backoff(t)
        wait_until(g, jobkey, now + wait, 'N')
        state = 'throttled ' .. int(wait)
        -- For a minute at most: then other jobs of the group show whether the downstream takes them again.
        if verdict == 'held' and set.gating == 1 then gate_group(g, now + math.min(wait, 60000000), 'busy') end
      end
    elseif verdict == 'retry' then
      run.tries, run.since = run.tries + 1, 0 -- the run failed; it was not refused
      if run.tries > retries then
        state = 'dead'
        bury(g, t, jobkey, run, code, text)
      else
        redis.call('HSET', K.runs, jobkey, write_run(run))
        wait_until(g, jobkey, now + math.max(after, backoff(t)), 'N')
      end
    else
      error({ err = 'ERR unknown verdict ' .. verdict })
    end
  end
  reply[#reply + 1] = state
end
local queued = shard.queued
for _, group in pairs(touched) do
  requeue(group)
  work.settle_charge(group)
  check_complete(group)
end
if shard.queued > queued then wake_worker() end
bulk_save()
reply[#reply + 1], reply[#reply + 2] = tally.ends[COMPLETED], tally.ends[FAILED]
return reply
