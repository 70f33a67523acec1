-- bulkchain: the beginning and the end of a group's wait for others (lib bulklife).

-- The most predecessors of a group, and the most groups that wait for one.
chain.BEFORE, chain.BEHIND = 20, 100

-- How long an ended group stays at least while a group on another shard waits for it and that shard is away; and how long after its end a group
-- that does not exist there may still be in creation. In µs.
chain.KEEP, chain.CREATION = 7 * 86400 * 1000000, 60000000

-- chain.decide returns whether a group starts, from its condition (after: 1 on_success, 2 on_failure, 3 on_end) and the statuses of all its
-- predecessors; nil while one of them has not ended.
function chain.decide(after, statuses)
  local completed = true
  for _, status in ipairs(statuses) do
    if status == '-' then return nil end
    if tonumber(status) ~= COMPLETED then completed = false end
  end
  return after == 3 or completed == (after == 1)
end

-- chain.crowded reports whether as many groups wait for a group as may.
function chain.crowded(p) return p[G_FOLLOWED] + p[G_FAR_FOLLOWED] >= chain.BEHIND end

-- chain.find returns the groups with these ids, separated by blanks, and their statuses as predecessors; or nil, a reason and an id. A group
-- of another shard is given as <id>@<shard>:<created>:<status>, and returned as { from = '@<shard>:<created>', id = <id> }.
function chain.find(ids)
  local list, statuses = {}, {}
  for word in string.gmatch(ids, '%S+') do
    local id, from, status = string.match(word, '^([^@]+)(@%d+:%d+):([-%d])$')
    local p = id and { from = from, id = id } or named_group(word)
    if not p then return nil, 'unknown', word end
    if not id and chain.crowded(p) then return nil, 'followed', word end
    list[#list + 1], statuses[#list + 1] = p, status or chain.status(p)
  end
  return list, statuses
end

-- chain.enter makes a new group wait for its predecessors, or a part of one for the first part.
function chain.enter(g, after, list, statuses)
  g[G_AFTER], g[G_WAITS] = after, g[G_PART] > 1 and 2 or 1 -- 2 as if a predecessor had not ended
  for i, p in ipairs(list) do
    redis.call('ZADD', K.links, 0, 'f' .. g[G_KEY] .. ' ' .. (p.from or p[G_KEY]) .. ' ' .. statuses[i] .. ' ' .. (p.id or p[G_ID]))
    if statuses[i] == '-' and p.from then
      g[G_WAITS], g[G_FAR_WAITS] = g[G_WAITS] + 1, g[G_FAR_WAITS] + 1
    elseif statuses[i] == '-' then
      redis.call('ZADD', K.links, 0, 'a' .. p[G_KEY] .. ' ' .. g[G_KEY])
      p[G_FOLLOWED], g[G_WAITS] = p[G_FOLLOWED] + 1, g[G_WAITS] + 1
    end
  end
end

-- chain.resume starts or cancels a waiting group whose predecessors have all ended, and reports whether they have. It reads the statuses of
-- predecessors that a process of an earlier version has ended or deleted. Of a split group the first part decides, and the others begin by
-- group_patch.
function chain.resume(g)
  if g[G_PART] > 1 then return false end
  local statuses = {}
  for i, link in ipairs(chain.links('f', g[G_KEY])) do
    local pkey, status, id = string.match(link, '^%S+ (%S+) (%S+) (%S+)$')
    if status == '-' and string.sub(pkey, 1, 1) ~= '@' then -- the end of a group of another shard comes by chain.record
      local p = bulk_group(pkey)
      status = p and chain.status(p) or tostring(CANCELLED)
      if status ~= '-' then
        redis.call('ZREM', K.links, link)
        redis.call('ZADD', K.links, 0, 'f' .. g[G_KEY] .. ' ' .. pkey .. ' ' .. status .. ' ' .. id)
      end
    end
    statuses[i] = status
  end
  local starts = chain.decide(g[G_AFTER], statuses)
  if starts == nil then return false end
  chain.leave(g)
  if not starts then
    g[G_SKIPPED] = 1
    cancel_group(g)
  end
  return true
end

-- chain.waits_for reports whether a group waits for a predecessor on another shard: from is @<shard>:<created> of it.
function chain.waits_for(g, from, id)
  return g[G_WAITS] > 0 and g[G_STATUS] <= RUNNING and redis.call('ZSCORE', K.links, 'f' .. g[G_KEY] .. ' ' .. from .. ' - ' .. id)
end

-- chain.record records the status with which such a predecessor has ended.
function chain.record(g, from, id, status)
  redis.call('ZREM', K.links, 'f' .. g[G_KEY] .. ' ' .. from .. ' - ' .. id)
  redis.call('ZADD', K.links, 0, 'f' .. g[G_KEY] .. ' ' .. from .. ' ' .. status .. ' ' .. id)
  g[G_WAITS], g[G_FAR_WAITS] = g[G_WAITS] - 1, g[G_FAR_WAITS] - 1
  plan_tend(g, now)
end

-- chain.far returns what a group's chains over shards need: r <shard> <id> for each group that has to get its end, and f <shard>:<created> <id> for
-- each predecessor that has to be asked for its end.
function chain.far(g)
  local lines = {}
  for _, link in ipairs(g[G_FAR_FOLLOWED] > 0 and chain.status(g) ~= '-' and chain.links('r', g[G_KEY]) or {}) do
    lines[#lines + 1] = 'r' .. string.match(link, ' .+$')
  end
  for _, link in ipairs(g[G_FAR_WAITS] > 0 and g[G_STATUS] <= RUNNING and chain.links('f', g[G_KEY]) or {}) do
    local from, id = string.match(link, '^%S+ @(%S+) %- (%S+)$')
    if from then lines[#lines + 1] = 'f ' .. from .. ' ' .. id end
  end
  return lines
end
