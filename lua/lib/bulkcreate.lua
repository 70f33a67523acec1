-- bulkcreate: creates a group, by itself or as a redrive.

-- create_group creates a group that does not exist. v has the arguments of group_create from id on; rolling is when a group of single jobs is
-- sealed, list and statuses are the predecessors of one that waits (lib bulkchain). It returns the group, or nil and the number of its
-- tenant's groups where the tenant may have no more; nothing is changed then.
local function create_group(v, rolling, list, statuses)
  local id, spec, tenant = v[1], v[2], v[3]
  local t, most = bulk_tenant(tenant), tonumber(v[14])
  local has = t[T_GROUPS] - t[T_ROLLING]
  if most > 0 and has >= most then return nil, has end
  shard.gseq = shard.gseq + 1
  local n, digits = shard.gseq, ''
  while n > 0 do
    local d = n % 36
    digits = string.sub('0123456789abcdefghijklmnopqrstuvwxyz', d + 1, d + 1) .. digits
    n = (n - d) / 36
  end
  local gkey = digits
  local g = {}
  for i = 1, G_LENGTH do g[i] = 0 end
  g[G_KEY] = gkey
  g[G_ID], g[G_TENANT], g[G_TYPE], g[G_WHY] = id, tenant, v[4], ''
  g[G_LEVEL], g[G_WEIGHT], g[G_RATE], g[G_CONC], g[G_BASE] = tonumber(v[5]), tonumber(v[6]), tonumber(v[7]), tonumber(v[8]), tonumber(v[9])
  g[G_HELD], g[G_STATUS], g[G_CREATED], g[G_TOUCHED] = tonumber(v[10]), CREATED, now, now
  g[G_UNIFORM] = tonumber(v[12]) == 0 and 1 or 0 -- a redrive takes over whatever types its group has
  g[G_CALLBACK], g[G_OF] = tonumber(v[11]), tonumber(v[12])
  g[G_STOP_COUNT], g[G_STOP_SHARE] = tonumber(v[15]), tonumber(v[16])
  g[G_TALLY], g[G_MOST_BAD], g[G_BAD_SHARE] = tonumber(v[17]), tonumber(v[18]), tonumber(v[19])
  g[G_RESULTS] = tonumber(v[20])
  g[G_START_AT], g[G_EXPIRES] = tonumber(v[21]), tonumber(v[22])
  if v[23] ~= '' then unique.note('g' .. tenant .. '/' .. v[23], id, now + tonumber(v[24])) end
  if v[27] ~= '' then g[G_QUIET] = v[27] end
  g[G_PART] = tonumber(v[28])
  if g[G_PART] > 0 then parts.divide(g, nil, nil, v[29], tonumber(v[30]), tonumber(v[31])) end
  if rolling then g[G_ROLLING], t[T_ROLLING] = rolling, t[T_ROLLING] + 1 end
  if list then chain.enter(g, tonumber(v[25]), list, statuses) end
  if v[13] == '1' then g[G_INNER], g[G_LEVEL], g[G_SHARE], g[G_BASED] = g[G_LEVEL], 2, 1000, 1 end
  groups[gkey] = g
  t[T_GROUPS] = t[T_GROUPS] + 1
  shard.open_groups = shard.open_groups + 1
  redis.call('HSET', K.names, id, gkey)
  redis.call('HSET', K.groups, gkey, spec)
  redis.call('ZADD', K.index, int(now), gkey)
  enlist(g)
  labels.add(g)
  plan_tend(g, tend_by(g))
  requeue(g) -- which closes it until start_at
  return g
end
