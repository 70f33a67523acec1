#!lua flags=allow-oom
-- rates_set: changes or reads rates and weights live: of the shard, or of a tenant.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy
-- ARGV: now, settings, tenant, field, value, ...
-- RETURNS: {global, per tenant, burst, 1 if live, weight, rate, groups, in flight, served}; an empty tenant is the shard, an empty value its configuration
-- INVARIANT: whatever a rate has gated is looked at again.
-- INCLUDE: clock, limiter, fair, bulk

local name = ARGV[3]
local t
for i = 4, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  if name == '' then
    local key = field == 'global' and 'live_global' or 'live_tenant'
    if value == '' then redis.call('HDEL', K.state, key) else redis.call('HSET', K.state, key, value) end
  else
    t = bulk_tenant(name)
    t[field] = tonumber(value)
    t.frac = 0
  end
end
local changed = #ARGV > 3
if name == '' then
  if changed then
    shard.level = 0
    -- In steps: who is not reached now wakes at its own time, or with the next call.
    for _, gate in ipairs(redis.call('ZRANGE', K.gates, 0, 999)) do
      if string.sub(gate, 1, 1) == 't' then open_tenant(bulk_tenant(string.sub(gate, 3))) end
    end
    bell()
  end
else
  t = bulk_tenant(name)
  if changed then
    open_tenant(t)
    bell()
  elseif redis.call('HEXISTS', K.tenants, name) == 0 then
    return { 'not_found' }
  end
end
if changed then bulk_save() end
local live = redis.call('HMGET', K.state, 'live_global', 'live_tenant')
return { int(live[1] and tonumber(live[1]) or set.file_global), int(live[2] and tonumber(live[2]) or set.file_tenant), int(set.burst), (live[1] or live[2]) and 1 or 0,
  t and int(t.weight) or 0, t and int(t.rate) or 0, t and t.groups or 0, t and t.inflight or 0, t and int(t.served) or 0 }
