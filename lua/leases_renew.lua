#!lua flags=allow-oom
-- leases_renew: extends leases by a full one.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, job, fence, ...
-- RETURNS: for each lease a code
-- REPLY LEASE_LOST: 0  another process runs the job, or will run it
-- REPLY LEASE_HELD: 1  extended
-- REPLY LEASE_CALLED: 2  extended, and the job is cancelled: it should end
-- INVARIANT: a lease is extended only with its fence, and only for the jobs that are named: of a batch that has others, they get leases of their own.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs, bulkleases

local reply, till, named, order = {}, int(now + set.lease), {}, {}
for i = 3, #ARGV, 2 do
  local jobkey, fence, code = ARGV[i], tonumber(ARGV[i + 1]), REPLY_LEASE_LOST
  local b, at = batches.find(jobkey, fence)
  local stored = not b and redis.call('HGET', K.runs, jobkey)
  if b and not named[b] then named[b], order[#order + 1] = { jobs = {}, n = 0 }, b end
  if b and not named[b].jobs[at] then named[b].jobs[at], named[b].n = true, named[b].n + 1 end
  if b or stored and read_run(stored).fence == fence and redis.call('ZSCORE', K.leases, jobkey) then
    if not b then redis.call('ZADD', K.leases, 'XX', till, jobkey) end
    local g = bulk_group(group_of(jobkey))
    local off = g[G_STATUS] == CANCELLED or g[G_CALLED_OFF] > 0 and redis.call('ZSCORE', K.aside, 'c' .. jobkey)
    code = off and REPLY_LEASE_CALLED or REPLY_LEASE_HELD
  end
  reply[#reply + 1] = code
end
for _, b in ipairs(order) do
  if named[b].n == b.left then
    redis.call('ZADD', K.batches, 'XX', till, int(b.first))
  else
    for at in pairs(named[b].jobs) do
      local run = batches.run(b, at)
      redis.call('HSET', K.runs, b.keys[at], write_run(run, run.mark and b.owner .. ' ' .. run.mark or b.owner))
      redis.call('ZADD', K.leases, till, b.keys[at])
      batches.leave(b, at)
    end
  end
end
batches.save()
bulk_save()
return reply
