#!lua flags=allow-oom
-- leases_reclaim: returns the jobs of a pull whose reply was lost: the process holds their leases and does not run them.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links
-- ARGV: now, settings, process, bound, fence, ...
-- RETURNS: {jobs returned}
-- INVARIANT: a job that never reached its worker runs immediately, and neither a try nor a crash is counted.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkturns

local known, touched, n = {}, {}, 0
for i = 5, #ARGV do known[ARGV[i]] = true end
-- The newest leases: those of the lost pull are among them.
for _, jobkey in ipairs(redis.call('ZREVRANGE', K.leases, 0, tonumber(ARGV[4]) - 1)) do
  local text = redis.call('HGET', K.runs, jobkey)
  local fence, owner = string.match(text or '', '^(%d+) %d+ %d+ %d+ %d+ (%S*)')
  if owner == ARGV[3] and not known[fence] then
    local g = bulk_group(group_of(jobkey))
    local t = bulk_tenant(g[G_TENANT])
    redis.call('ZREM', K.leases, jobkey)
    work.release(g, t, 0)
    types.release(text)
    touched[g[G_KEY]] = g
    n = n + 1
    if work.called_off(g, jobkey) then
      cancel_job(g, t, jobkey)
    else
      redis.call('HSET', K.runs, jobkey, write_run(read_run(text)))
      to_front(g, jobkey)
    end
  end
end
for _, g in pairs(touched) do
  requeue(g)
  work.settle_charge(g)
  check_complete(g)
end
if n > 0 then wake_worker() end
bulk_save()
return { n }
