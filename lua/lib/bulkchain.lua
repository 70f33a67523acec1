-- bulkchain: the beginning and the end of a group's wait for others (lib bulklife).

-- The most predecessors of a group, and the most groups that wait for one.
chain.BEFORE, chain.BEHIND = 20, 100

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

-- chain.find returns the groups with these ids, separated by blanks, and their statuses as predecessors; or nil, a reason and an id.
function chain.find(ids)
  local list, statuses = {}, {}
  for id in string.gmatch(ids, '%S+') do
    local p = named_group(id)
    if not p then return nil, 'unknown', id end
    if p[G_FOLLOWED] >= chain.BEHIND then return nil, 'followed', id end
    list[#list + 1], statuses[#list + 1] = p, chain.status(p)
  end
  return list, statuses
end

-- chain.enter makes a new group wait for its predecessors.
function chain.enter(g, after, list, statuses)
  g[G_AFTER], g[G_WAITS] = after, 1
  for i, p in ipairs(list) do
    redis.call('ZADD', K.links, 0, 'f' .. g[G_KEY] .. ' ' .. p[G_KEY] .. ' ' .. statuses[i] .. ' ' .. p[G_ID])
    if statuses[i] == '-' then
      redis.call('ZADD', K.links, 0, 'a' .. p[G_KEY] .. ' ' .. g[G_KEY])
      p[G_FOLLOWED], g[G_WAITS] = p[G_FOLLOWED] + 1, g[G_WAITS] + 1
    end
  end
end

-- chain.resume starts or cancels a waiting group whose predecessors have all ended, and reports whether they have. It reads the statuses of
-- predecessors that a process of an earlier version has ended or deleted.
function chain.resume(g)
  local statuses = {}
  for i, link in ipairs(chain.links('f', g[G_KEY])) do
    local pkey, status, id = string.match(link, '^%S+ (%S+) (%S+) (%S+)$')
    if status == '-' then
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
