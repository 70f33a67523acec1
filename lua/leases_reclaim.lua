#!lua flags=allow-oom
-- leases_reclaim: returns the jobs of a pull whose reply was lost: the process holds their leases and does not run them.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, process, bound, fence, ...
-- RETURNS: {jobs returned}
-- INVARIANT: a job that never reached its worker runs immediately, and neither a try nor a crash is counted.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkturns, bulkleases

local known, touched, n = {}, {}, 0
for i = 5, #ARGV do known[ARGV[i]] = true end

-- give_back returns a job to the front of its group, with what is to be kept of its runs, if anything.
local function give_back(jobkey, text, mark, kept)
  local g = bulk_group(group_of(jobkey))
  local t = bulk_tenant(g[G_TENANT])
  work.release(g, t, 0)
  types.release(text, mark)
  touched[g[G_KEY]] = g
  n = n + 1
  if work.called_off(g, jobkey) then
    cancel_job(g, t, jobkey)
  else
    if kept then redis.call('HSET', K.runs, jobkey, kept) end
    to_front(g, jobkey)
  end
end

-- The newest leases: those of the lost pull are among them.
local bound = tonumber(ARGV[4])
for _, jobkey in ipairs(redis.call('ZREVRANGE', K.leases, 0, bound - 1)) do
  local text = redis.call('HGET', K.runs, jobkey)
  local fence, owner = string.match(text or '', '^(%d+) %d+ %d+ %d+ %d+ (%S*)')
  if owner == ARGV[3] and not known[fence] then
    redis.call('ZREM', K.leases, jobkey)
    give_back(jobkey, text, nil, write_run(read_run(text)))
  end
end
for _, name in ipairs(redis.call('ZREVRANGE', K.batches, 0, bound - 1)) do
  local b = bound > 0 and batches.read(tonumber(name))
  if b and b.owner == ARGV[3] then
    for at, jobkey in ipairs(b.keys) do
      if b.out[at] == 48 and not known[int(b.first + at - 1)] then
        batches.leave(b, at)
        give_back(jobkey, nil, b.abouts[at].mark)
      end
    end
  end
  bound = bound - (b and #b.keys or 0)
end
batches.save()
for _, g in pairs(touched) do
  requeue(g)
  work.settle_charge(g)
  check_complete(g)
end
if n > 0 then wake_worker() end
bulk_save()
return { n }
