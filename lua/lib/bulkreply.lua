-- bulkreply: a group as scripts reply it.

-- group_reply returns a group's spec, then its settings and figures as name, value, ...; with whole also its result and the codes of its
-- failures, if it has ended or is a part of one.
local function group_reply(g, whole)
  local gkey = g[G_KEY]
  local line = { redis.call('HGET', K.groups, gkey), 'now', int(now) }
  for k, name in ipairs(G_FIELDS) do
    line[#line + 1] = name
    line[#line + 1] = type(g[k]) == 'number' and int(g[k]) or g[k]
  end
  local t, refused = bulk_tenant(g[G_TENANT]), count_refused('N' .. g[G_TENANT] .. '/' .. gkey)
  -- limit is the smallest of the configured rates that bound the group's starts, in thousandths.
  local limit, d = set.global, parts.lease(g)
  local phase, steps
  if d and d.rate > 0 then phase, steps = parts.of_group(g, d) end
  for _, rate in ipairs({ steps and math.max(1, steps[phase][1]) or g[G_RATE], t[T_RATE] > 0 and t[T_RATE] or set.per_tenant }) do
    if rate > 0 then limit = math.min(limit, rate) end
  end
  local unserved = 0
  for _, kind in ipairs(g[G_ASIDE] > 0 and deferred_kinds(gkey) or {}) do
    if now - type_seen(kind) > types.SERVED then unserved = unserved + redis.call('ZLEXCOUNT', K.aside, deferred_range('j' .. gkey .. ' ' .. kind)) end
  end
  local result = whole and (g[G_STATUS] > AGGREGATING or g[G_PART] > 0) and redis.call('HMGET', K.sums, gkey, gkey .. '#') or {}
  for name, value in pairs({
    refused = refused, scheduled = count_refused('S' .. g[G_TENANT] .. '/' .. gkey), tenant_gate = t[T_GATE], limit = limit,
    links = g[G_AFTER] > 0 and table.concat(redis.call('ZRANGEBYLEX', K.links, '[f' .. gkey .. ' ', '(f' .. gkey .. '!'), '\n') or '',
    backoff = refused > 0 and t[T_BACKOFF] or 0, unserved = unserved, result = result[1] or '', codes = result[2] or '',
  }) do
    line[#line + 1], line[#line + 2] = name, type(value) == 'number' and int(value) or value
  end
  -- Of a split group whose limits are lent: those of the whole group, and how many of its jobs may run here.
  for name, value in pairs(d and { whole_rate = (d.rate > 0 or g[G_RATE] == 0) and d.rate, whole_conc = (d.conc > 0 or g[G_CONC] == 0) and d.conc,
    slots = parts.slots_of(g) } or {}) do
    if value then line[#line + 1], line[#line + 2] = name, int(value) end
  end
  return line
end
