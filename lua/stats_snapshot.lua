#!lua flags=allow-oom
-- stats_snapshot: adds to the history of tenants with work, and computes the figures of fairness; at most one call a second does work.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, bound
-- RETURNS: {1 done, 0 too early}
-- INVARIANT: the history holds no more than its retention.
-- INCLUDE: clock, limiter, fair, bulk, bulkjobs

local last = tonumber(redis.call('HGET', K.state, 'snap_at') or 0)
if now - last < 950000 then return { 0 } end
local sum, squares, n, most, refusals, counted = 0, 0, 0, 0, 0, 0
-- The tenants whose last entry is the oldest. With more than bound tenants, each gets an entry less than once a second.
for _, name in ipairs(redis.call('ZRANGE', K.busy, 0, tonumber(ARGV[3]) - 1)) do
  local t = bulk_tenant(name)
  local refused = count_refused('N' .. name)
  local wait = refused > 0 and t[T_BACKOFF] or 0
  redis.call('ZADD', K.history, 0, name .. '/' .. string.format('%016.0f', now) .. ' '
    .. table.concat({ int(refused), int(t[T_OPEN]), int(t[T_INFLIGHT]), int(tenant_rate(t)), int(wait), int(t[T_MEAN] * 1000000), int(t[T_JOBS]) }, ' '))
  redis.call('ZREMRANGEBYLEX', K.history, '[' .. name .. '/', '(' .. name .. '/' .. string.format('%016.0f', now - set.keep_stats))
  most = math.max(most, wait)
  refusals, counted = refusals + t[T_MEAN] * t[T_JOBS], counted + t[T_JOBS]
  local level = t[T_N1] > 0 and 1 or t[T_N2] > 0 and 2 or 3
  if t[T_SEEN] > 0 and now > t[T_SEEN] and (t[T_N1] + t[T_N2] + t[T_N3] > 0) then
    local x = math.max(0, t[T_WORK] - t[T_WAS]) / (now - t[T_SEEN]) / t[T_WEIGHT] / fair.LEVELS[level]
    sum, squares, n = sum + x, squares + x * x, n + 1
  end
  t[T_WAS], t[T_SEEN] = t[T_WORK], now
  redis.call('ZADD', K.busy, int(now), name)
end
-- The history of tenants without work is trimmed one tenant after the other.
local at = redis.call('HGET', K.state, 'snap_trim') or '-'
for _ = 1, 5 do
  local oldest = redis.call('ZRANGEBYLEX', K.history, at, '+', 'LIMIT', 0, 1)[1]
  if not oldest then
    at = '-'
    break
  end
  local name = string.match(oldest, '^[^/]+')
  at = '[' .. name .. '0'
  redis.call('ZREMRANGEBYLEX', K.history, '[' .. name .. '/', '(' .. name .. '/' .. string.format('%016.0f', now - set.keep_stats))
end
local jain = 1
if n > 1 and squares > 0 then jain = sum * sum / (n * squares) end
local accuracy = 0
local starts = tonumber(redis.call('HGET', K.state, 'snap_starts') or 0)
local backlog = tonumber(redis.call('HGET', K.state, 'snap_queued') or 0)
if last > 0 and now - last < 5000000 and shard.queued > 0 and backlog > 0 and set.global > 0 then
  accuracy = (shard.starts - starts) / ((now - last) / 1000000) / (set.global / 1000)
end

-- The oldest job of each level that waits for its turn or a limit, as the time at which it was accepted, in ms. A job is no older than its group, so the
-- search goes through the groups under way by age and stops at the first that cannot have an older one, or after OLD_GROUPS. It reads the groups'
-- records itself: bulk_save writes back those that bulk_group has read.
local OLD_GROUPS = 200

-- first_job returns the job of a group that is next, and its record.
local function first_job(g)
  local id
  if g[G_FRONT] > 0 then
    local member = redis.call('ZRANGEBYLEX', K.front, '[+' .. g[G_KEY] .. ' ', '(+' .. g[G_KEY] .. '!', 'LIMIT', 0, 1)[1]
    id = member and string.match(member, '(%S+)$')
  end
  for page = g[G_HP], math.min(g[G_TP], g[G_HP] + 5) do
    if id then break end
    local ids = redis.call('HGET', K.order, g[G_KEY] .. ':' .. int(page)) or ''
    id = string.match(ids, '[^\n]+', page == g[G_HP] and g[G_HO] + 1 or 1)
  end
  return id and read_head(redis.call('HGET', K.jobs, g[G_KEY] .. '/' .. id))
end

-- waits reports whether a group has jobs that are to start as soon as its turn comes and the limits allow.
local function waits(g)
  local planned = g[G_GATE] > now and (g[G_WHY] == 'start' or g[G_WHY] == 'quiet')
  return (g[G_FRONT] > 0 or g[G_TAKEN] < g[G_ADDED]) and g[G_PAUSED] == 0 and g[G_EXPIRED] == 0 and g[G_WAITS] == 0 and not planned
    and (g[G_SEALED] == 1 or g[G_HELD] == 0)
end

-- packed_records returns the records of the groups of a status, the oldest first, packed.
local function packed_records(status)
  local gkeys = {}
  for i, place in ipairs(redis.call('ZRANGEBYLEX', K.lists, '[s' .. status, '(s' .. (status + 1), 'LIMIT', 0, OLD_GROUPS)) do
    gkeys[i] = string.sub(place, 10) -- lib bulklife: place_in_lists
  end
  return gkeys[1] and redis.call('HMGET', K.flow, unpack(gkeys)) or {}
end

local oldest = {}
for status = CREATED, RUNNING do
  for _, packed in ipairs(packed_records(status)) do
    local g = packed and unpack_record(packed, G_LENGTH)
    local created = g and math.floor(g[G_CREATED] / 1000) or 0
    if oldest[1] and oldest[2] and oldest[3] and created > math.max(oldest[1], oldest[2], oldest[3]) then break end
    if g and waits(g) and not (oldest[g[G_LEVEL]] and oldest[g[G_LEVEL]] <= created) then
      local head = first_job(g)
      local at_ms = head and tonumber(head.created)
      if at_ms then oldest[g[G_LEVEL]] = math.min(oldest[g[G_LEVEL]] or at_ms, at_ms) end
    end
  end
end

redis.call('HSET', K.state, 'oldest', int(oldest[1] or 0) .. ' ' .. int(oldest[2] or 0) .. ' ' .. int(oldest[3] or 0))
redis.call('HSET', K.state, 'snap_trim', at, 'snap_at', int(now), 'snap_starts', int(shard.starts), 'snap_queued', int(shard.queued),
  'jain', int(jain * 1000000), 'accuracy', int(accuracy * 1000000), 'most', int(most),
  'mean', int(counted > 0 and refusals / counted * 1000000 or 0))
bulk_save()
return { 1 }
