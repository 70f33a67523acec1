#!lua flags=allow-oom
-- group_patch: changes the live fields of a group, or cancels it.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, group, own (1: by a tenant's token), field, value, ...
-- RETURNS: {group} or {reason, detail, ...}:
--   {'not_found'}
--   {'wrong_state', status}         the group has ended
--   {'past', now}                   the new expires has passed
--   {'expired', expires}            the expires that the group has is past
--   {'order', start_at, expires}    start_at would not be before expires
--   {'operators_only', field}       an operator has set it, and own is 1
-- INVARIANT: cancelling and pausing are one step, however large the group; gates are checked again.
--   A stop_at that is reached already pauses immediately, unless the same call resumes the group.
--   Of a split group, rate and conc are those of this part; shards, whole_rate and whole_conc are then those of the group.
--   halt pauses a split group for its stop_at, unless it was resumed after that; callback is for a split redrive that has jobs;
--   begin is for a part whose first part no longer waits.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkreply

local g = named_group(ARGV[3])
if not g then return { 'not_found' } end
for i = 5, #ARGV, 2 do
  if g[G_STATUS] > AGGREGATING and not (ARGV[i] == 'cancel' and g[G_STATUS] == CANCELLED) then return { 'wrong_state', g[G_STATUS] } end
end
local own = ARGV[4] == '1'
local times = { start_at = g[G_START_AT], expires = g[G_EXPIRES] }
for i = 5, #ARGV, 2 do
  if ARGV[i] == 'expires' and g[G_EXPIRES] > 0 and now >= g[G_EXPIRES] then return { 'expired', int(g[G_EXPIRES]) } end
  if times[ARGV[i]] then times[ARGV[i]] = tonumber(ARGV[i + 1]) end
end
if times.expires > 0 and times.expires ~= g[G_EXPIRES] and times.expires <= now then return { 'past', int(now) } end
if times.expires > 0 and times.expires <= times.start_at then return { 'order', int(times.start_at), int(times.expires) } end
-- Settings by an operator count among tenants: a tenant must not undo them.
for i = 5, own and #ARGV or 0, 2 do
  local field = ARGV[i]
  if field == 'weight' and g[G_SHARE] == 0 and g[G_WEIGHT] ~= 1000 or field == 'level' and g[G_INNER] == 0 and g[G_LEVEL] ~= 2
    or field == 'base' and g[G_BASED] == 0 and g[G_BASE] ~= 0 then return { 'operators_only', field } end
end
local live = { weight = G_WEIGHT, rate = G_RATE, conc = G_CONC, base = G_BASE, level = G_LEVEL, paused = G_PAUSED,
  stop_count = G_STOP_COUNT, stop_share = G_STOP_SHARE, start_at = G_START_AT, expires = G_EXPIRES }
local level, stop, resumed, began = g[G_LEVEL], false, false, false
local divided, meter, whole = parts.lease(g), group_limiter(g), {}
dequeue(g)
types.unbar(g) -- if its type may still start no job, the next pull blocks it again
for i = 5, #ARGV, 2 do
  local field, value = ARGV[i], tonumber(ARGV[i + 1])
  if field == 'cancel' then
    if g[G_STATUS] ~= CANCELLED then cancel_group(g) end
  elseif field == 'callback' then
    if g[G_CALLBACK] == 0 then g[G_CALLBACK] = 1 end
  elseif field == 'begin' then
    if g[G_PART] > 1 and g[G_WAITS] > 0 then
      chain.leave(g)
      began = true
    end
  elseif field == 'halt' then
    if g[G_STATUS] <= AGGREGATING and g[G_STOPPED] == 0 and g[G_PAUSED] == 0 then g[G_PAUSED], g[G_STOPPED] = 1, 1 end
  elseif field == 'quiet' then
    g[G_QUIET] = ARGV[i + 1] ~= '' and ARGV[i + 1] or 0
    if g[G_WHY] == 'quiet' then open_group(g) end
  elseif field == 'shards' then
    whole.shards = ARGV[i + 1]
  elseif field == 'whole_rate' or field == 'whole_conc' then
    whole[field] = value
  elseif live[field] then
    g[live[field]] = value
    if field == 'weight' then g[G_SHARE] = own and 1000 or 0 end
    if field == 'level' then g[G_INNER], g[G_LEVEL] = own and value or 0, own and 2 or value end
    if field == 'base' then g[G_BASED] = own and 1 or 0 end
    if field == 'paused' and value == 0 then resumed = true end
    if string.sub(field, 1, 4) == 'stop' then stop = true end
    if field == 'rate' and g[G_WHY] == 'rate' or field == 'start_at' and g[G_WHY] == 'start' then open_group(g) end
    if field == 'expires' and value > 0 then plan_tend(g, value) end
  else
    error({ err = 'ERR unknown field ' .. field })
  end
end
if whole.shards then parts.divide(g, divided, meter, whole.shards, whole.whole_rate, whole.whole_conc) end
if resumed then
  if stop or g[G_STOPPED] == 1 then g[G_STOPPED] = (work.too_many(g) or g[G_PART] > 0 and g[G_STOPPED] == 1) and 2 or 0 end
elseif stop then
  if g[G_STOPPED] == 2 then g[G_STOPPED] = 0 end
  if g[G_STATUS] <= RUNNING then work.stop(g) end
end
if g[G_PART] > 0 then plan_tend(g, now) end -- the other parts follow
if g[G_LEVEL] ~= level then g[G_TAG] = 0 end -- tags of another level mean nothing here
requeue(g)
if g[G_QUEUED] == 1 then wake_worker() end
if began then check_complete(g) end
bulk_save()
return { group_reply(g, true) }
