#!lua flags=no-writes
-- tenant_read: reads how tenants stand.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy
-- ARGV: now, settings, tenant, ...
-- RETURNS: for each {weight, rate, groups, in flight, served, refused jobs, jobs to do, jobs a second, backoff, mean refusals in millionths, jobs counted, now,
--   groups queued high, normal, low, gate} or false
-- INVARIANT: reads only.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs

local reply = {}
for i = 3, #ARGV do
  local name = ARGV[i]
  if redis.call('HEXISTS', K.tenants, name) == 0 then
    reply[#reply + 1] = false
  else
    local t = bulk_tenant(name)
    local n = count_refused('N' .. name)
    reply[#reply + 1] = { int(t.weight), int(t.rate), t.groups, t.inflight, int(t.served), n, int(t.open), int(tenant_rate(t)),
      int(n > 0 and t.backoff or 0), int(t.mean * 1000000), int(t.jobs), int(now), t.n1, t.n2, t.n3, int(t.gate) }
  end
end
return reply
