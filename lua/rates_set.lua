#!lua flags=allow-oom
-- rates_set: changes or reads rates and weights live: of the shard and the types of jobs, or of a tenant.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings,
--   tenant (empty: the shard),
--   from (gates that earlier calls of this change have checked and left closed),
--   field (of the shard: global, per_tenant, rate/type, concurrency/type; of a tenant: weight, rate, conc),
--   value, ... (empty: as configured)
-- RETURNS: {reason}, or a list of
--   global, per tenant, burst
--   live          1: the operator has changed one of them
--   weight, rate, groups, in flight, served   of the tenant
--   from          of the next call; -1: none
--   adaptive      1: the global rate is one that the adaptive control has found
--   concurrency   of the tenant
--   limits of types that are live   (type, rate, concurrency, in words; - for as configured)
-- INVARIANT: every gate that a rate has closed is checked again, a thousand a call.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue

-- live_type sets one limit of a type over the configured one, or, with an empty value, removes it.
local function live_type(kind, of, value)
  local list, found = {}, { kind, '-', '-' }
  for other, rate, most in string.gmatch(set.live_types, '(%S+) (%S+) (%S+)') do
    if other == kind then found = { kind, rate, most } else list[#list + 1] = other .. ' ' .. rate .. ' ' .. most end
  end
  found[of == 'rate' and 2 or 3] = value == '' and '-' or value
  if found[2] ~= '-' or found[3] ~= '-' then list[#list + 1] = table.concat(found, ' ') end
  table.sort(list)
  set.live_types = table.concat(list, ' ')
  redis.call('HSET', K.state, 'live_types', set.live_types)
end

-- parts.note keeps the list of tenants with limits of their own, which rates_lend reads.
function parts.note(t)
  if set.shards == 1 then return end
  t[T_LENT] = (t[T_RATE] > 0 or t[T_CONC] > 0) and 1 or 0
  local list = {}
  for other in string.gmatch(redis.call('HGET', K.state, 'limited') or '', '%S+') do
    if other ~= t[T_NAME] then list[#list + 1] = other end
  end
  if t[T_LENT] == 1 then list[#list + 1] = t[T_NAME] end
  redis.call('HSET', K.state, 'limited', table.concat(list, ' '))
end

local name, from, next_from = ARGV[3], tonumber(ARGV[4]), -1
local t
for i = 5, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  local of, kind = string.match(field, '^(%a+)/(.+)$')
  if kind then
    live_type(kind, of, value)
  elseif name == '' then
    local key = field == 'global' and 'live_global' or 'live_tenant'
    if value == '' then redis.call('HDEL', K.state, key) else redis.call('HSET', K.state, key, value) end
  else
    t = bulk_tenant(name)
    t[({ weight = T_WEIGHT, rate = T_RATE, conc = T_CONC })[field]] = tonumber(value)
    parts.note(t)
  end
end
local changed = #ARGV > 4 or from > 0
if name ~= '' then
  t = bulk_tenant(name)
  if not changed and redis.call('HEXISTS', K.tenants, name) == 0 then return { 'not_found' } end
end
if changed then
  if t then
    open_tenant(t)
    update_full(t)
  end
  local gates, before = redis.call('ZRANGE', K.gates, from, from + 999), redis.call('ZCARD', K.gates)
  for _, gate in ipairs(gates) do
    local gated = string.sub(gate, 3)
    if string.sub(gate, 1, 1) == 'g' then
      local g = bulk_group(gated)
      if g and g[G_WHY] == 'rate' and (name == '' or g[G_TENANT] == name) then open_group(g) end
    elseif name == '' then
      open_tenant(bulk_tenant(gated))
    end
  end
  if #gates == 1000 then next_from = from + 1000 - (before - redis.call('ZCARD', K.gates)) end
  wake_worker()
end
if changed then bulk_save() end
if t and changed and t[T_GROUPS] == 0 and t[T_WEIGHT] == 1000 and t[T_RATE] == 0 and t[T_CONC] == 0 then redis.call('HDEL', K.tenants, name) end
local live = redis.call('HMGET', K.state, 'live_global', 'live_tenant')
return { int(live[1] and tonumber(live[1]) or set.file_global), int(live[2] and tonumber(live[2]) or set.file_tenant), int(set.file_burst), (live[1] or live[2]) and 1 or 0,
  t and int(t[T_WEIGHT]) or 0, t and int(t[T_RATE]) or 0, t and t[T_GROUPS] or 0, t and t[T_INFLIGHT] or 0, t and int(t[T_SERVED]) or 0, next_from,
  set.adaptive == 1 and not live[1] and 1 or 0, t and t[T_CONC] or 0, set.live_types }
