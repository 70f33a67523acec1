#!lua flags=no-writes
-- group_read: reads groups: what they are and how they stand.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists
-- ARGV: now, settings, by, name, ...
-- RETURNS: for each {spec, status and figures as name, value, ...}, or false where there is none; by is id or key
-- INVARIANT: reads only.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs

local reply = {}
for i = 4, #ARGV do
  local gkey = ARGV[i]
  if ARGV[3] == 'id' then gkey = redis.call('HGET', K.names, gkey) end
  local g = gkey and bulk_group(gkey)
  if not g then
    reply[#reply + 1] = false
  else
    local line = { redis.call('HGET', K.groups, gkey), 'now', int(now) }
    for k, name in ipairs(G_FIELDS) do
      line[#line + 1] = name
      line[#line + 1] = type(g[k]) == 'number' and int(g[k]) or g[k]
    end
    local n = count_refused('N' .. g[G_TENANT] .. '/' .. gkey)
    line[#line + 1], line[#line + 2] = 'refused', n
    line[#line + 1], line[#line + 2] = 'scheduled', count_refused('S' .. g[G_TENANT] .. '/' .. gkey)
    local t = bulk_tenant(g[G_TENANT])
    line[#line + 1], line[#line + 2] = 'tenant_gate', int(t[T_GATE])
    -- limit is the smallest of the configured rates that bound the group's starts, in thousandths.
    local limit = set.global
    for _, rate in ipairs({ g[G_RATE], t[T_RATE] > 0 and t[T_RATE] or set.per_tenant }) do
      if rate > 0 then limit = math.min(limit, rate) end
    end
    line[#line + 1], line[#line + 2] = 'limit', int(limit)
    line[#line + 1], line[#line + 2] = 'backoff', int(n > 0 and t[T_BACKOFF] or 0)
    local unserved = 0
    for _, kind in ipairs(g[G_ASIDE] > 0 and aside_kinds(gkey) or {}) do
      if now - type_seen(kind) > SERVED then unserved = unserved + redis.call('ZLEXCOUNT', K.aside, aside_range('j' .. gkey .. ' ' .. kind)) end
    end
    line[#line + 1], line[#line + 2] = 'unserved', unserved
    reply[#reply + 1] = line
  end
end
return reply
