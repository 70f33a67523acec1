#!lua flags=allow-oom
-- leases_renew: extends leases by a full one.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links
-- ARGV: now, settings, job, fence, ...
-- RETURNS: for each lease a code
-- REPLY LEASE_LOST: 0  another process runs the job, or will run it
-- REPLY LEASE_HELD: 1  extended
-- REPLY LEASE_CALLED: 2  extended, and the job is cancelled: it should end
-- INVARIANT: a lease is extended only with its fence.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs

local reply = {}
for i = 3, #ARGV, 2 do
  local jobkey, code = ARGV[i], REPLY_LEASE_LOST
  local stored = redis.call('HGET', K.runs, jobkey)
  if stored and read_run(stored).fence == tonumber(ARGV[i + 1]) and redis.call('ZSCORE', K.leases, jobkey) then
    redis.call('ZADD', K.leases, 'XX', int(now + set.lease), jobkey)
    local g = bulk_group(group_of(jobkey))
    local off = g[G_STATUS] == CANCELLED or g[G_CALLED_OFF] > 0 and redis.call('ZSCORE', K.aside, 'c' .. jobkey)
    code = off and REPLY_LEASE_CALLED or REPLY_LEASE_HELD
  end
  reply[#reply + 1] = code
end
bulk_save()
return reply
