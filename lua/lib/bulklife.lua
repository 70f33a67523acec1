-- bulklife: the states of a group from its creation to its end, and its housekeeping.

-- plan_tend plans a group's housekeeping at a time, or earlier if it is planned so.
local function plan_tend(g, at)
  local was = redis.call('ZSCORE', K.agenda, g[G_KEY])
  if not was or tonumber(was) > at then redis.call('ZADD', K.agenda, int(at), g[G_KEY]) end
end

-- place_in_lists returns a group's two members of K.lists, by its tenant and status and by its status alone: t<tenant>, a zero byte, or s,
-- followed by the status's digit, the time of its creation (7 bytes, big-endian) and its short name.
local function place_in_lists(g)
  local tail = g[G_STATUS] .. struct.pack('>I7', g[G_CREATED]) .. g[G_KEY]
  return 't' .. g[G_TENANT] .. '\0' .. tail, 's' .. tail
end

local function enlist(g)
  local of_tenant, of_all = place_in_lists(g)
  redis.call('ZADD', K.lists, 0, of_tenant, 0, of_all)
end

local function unlist(g) redis.call('ZREM', K.lists, place_in_lists(g)) end

-- labels has the functions about the labels of groups. K.lists has two members for each label of a group, or of the first part of one: l, its tenant
-- or nothing, a zero byte, <key>=<value> as in the spec, a zero byte, the time of its creation (7 bytes, big-endian) and its short name.
local labels = {}

-- labels.places returns these members of a group.
function labels.places(g)
  local places = {}
  local spec = g[G_PART] <= 1 and redis.call('HGET', K.groups, g[G_KEY]) or ''
  local tail = '\0' .. struct.pack('>I7', g[G_CREATED]) .. g[G_KEY]
  for label in string.gmatch(string.match(spec, '"Labels":"([^"]*)"') or '', '%S+') do
    places[#places + 1] = 'l' .. g[G_TENANT] .. '\0' .. label .. tail
    places[#places + 1] = 'l\0' .. label .. tail
  end
  return places
end

function labels.add(g)
  for _, place in ipairs(labels.places(g)) do redis.call('ZADD', K.lists, 0, place) end
end

-- chain has the functions about groups that wait for others. K.links has, at one score,
--   f<group> <predecessor> <status> <id>   what a group waits for: the predecessor's short name and id, and - until it has ended
--   a<predecessor> <group>                 that the group waits for it
-- and for groups on different shards:
--   f<group> @<shard>:<created> <status> <id>   as above, with the time of the predecessor's creation in µs, by which a later group with its id is recognised
--   r<predecessor> <shard> <id>                 that a group of that shard waits for it, until that shard has recorded its end
-- A predecessor has ended once it has its status and, if it was cancelled, none of its jobs runs, in no part of it.
local chain = {}

-- chain.status returns the status of a group that has ended, as a predecessor, or - if it has not.
function chain.status(g)
  return g[G_STATUS] > AGGREGATING and (g[G_STATUS] ~= CANCELLED or g[G_SWEPT] > (g[G_PART] > 0 and 1 or 0)) and tostring(g[G_STATUS]) or '-'
end

-- chain.links returns the members of K.links that begin with a letter and a group's short name.
function chain.links(letter, gkey)
  return redis.call('ZRANGEBYLEX', K.links, '[' .. letter .. gkey .. ' ', '(' .. letter .. gkey .. '!')
end

-- chain.note_end tells the groups that wait for a group that it has ended; their housekeeping decides whether they start.
function chain.note_end(p)
  for _, link in ipairs(p[G_FOLLOWED] > 0 and chain.links('a', p[G_KEY]) or {}) do
    redis.call('ZREM', K.links, link)
    local g = bulk_group(string.match(link, '%S+$'))
    if g then
      redis.call('ZREM', K.links, 'f' .. g[G_KEY] .. ' ' .. p[G_KEY] .. ' - ' .. p[G_ID])
      redis.call('ZADD', K.links, 0, 'f' .. g[G_KEY] .. ' ' .. p[G_KEY] .. ' ' .. p[G_STATUS] .. ' ' .. p[G_ID])
      if g[G_WAITS] > 1 then g[G_WAITS] = g[G_WAITS] - 1 end
      plan_tend(g, now)
    end
  end
  p[G_FOLLOWED] = 0
  if p[G_FAR_FOLLOWED] > 0 then plan_tend(p, now) end -- which names the groups on other shards
end

-- chain.leave ends a group's wait.
function chain.leave(g)
  g[G_WAITS], g[G_FAR_WAITS] = 0, 0
  for _, link in ipairs(chain.links('f', g[G_KEY])) do
    local pkey = string.match(link, ' (%S+)')
    local p = redis.call('ZREM', K.links, 'a' .. pkey .. ' ' .. g[G_KEY]) == 1 and bulk_group(pkey)
    if p then p[G_FOLLOWED] = p[G_FOLLOWED] - 1 end
  end
end

-- set_status changes a group's status and its places in the lists.
local function set_status(g, status)
  if status > RUNNING then types.unbar(g) end
  unlist(g)
  g[G_STATUS], g[G_EPOCH] = status, g[G_EPOCH] + 1
  enlist(g)
  if chain.status(g) ~= '-' then chain.note_end(g) end
end

-- cancel_group cancels a group. Jobs that are pending, ready or waiting are cancelled from now on; a bounded sweep records that job by job.
local function cancel_group(g)
  dequeue(g)
  if g[G_WAITS] > 0 then chain.leave(g) end
  set_status(g, CANCELLED)
  g[G_FINISHED] = now
  shard.pending = shard.pending - (g[G_ADDED] - g[G_TAKEN]) - g[G_FRONT]
  shard.open_groups = shard.open_groups - 1
  plan_tend(g, now)
end

-- silent_from returns when an unsealed group is sealed because no job and no outcome has arrived since. For a redrive, whose steps take moments,
-- that is a minute at most: it then runs the jobs that it has, and the others stay in their group. A group of single jobs has its own time.
local function silent_from(g)
  if g[G_ROLLING] > 0 then return g[G_ROLLING] end
  return math.max(g[G_TOUCHED], g[G_OUTCOME_AT]) + (g[G_OF] == 1 and math.min(set.silence, 60000000) or set.silence)
end

-- STOP_CHECK is how often the failures of all parts of a split group with a stop_at are counted, in µs.
local STOP_CHECK = 250000

-- tend_by returns by when the housekeeping of a group that has not ended is due: when it would be silent for too long, or expires, or may
-- have nothing left to wait for; nil where only its outcomes can make it due.
local function tend_by(g)
  local at = g[G_SEALED] == 0 and g[G_STATUS] == CREATED and silent_from(g) or nil
  if g[G_PART] > 0 and g[G_STATUS] <= RUNNING then
    -- Whether it is sealed for silence, or stopped, depends on the other parts: group_tend names it until bulk/store has decided.
    if at and at <= now then at = now + math.min(60000000, set.silence) end
    if g[G_PART] == 1 and g[G_WAITS] == 0 and g[G_PAUSED] == 0 and g[G_STOPPED] == 0 and (g[G_STOP_COUNT] > 0 or g[G_STOP_SHARE] > 0) then at = math.min(at or now + STOP_CHECK, now + STOP_CHECK) end
  end
  if g[G_EXPIRES] > 0 and g[G_STATUS] <= RUNNING then
    local expires = g[G_EXPIRED] == 1 and now + 1000000 or g[G_EXPIRES]
    at = at and math.min(at, expires) or expires
  end
  -- The end of a predecessor plans it earlier, unless a process of an earlier version has ended it.
  if g[G_WAITS] > 0 and g[G_STATUS] <= RUNNING then
    -- A part other than the first finds out, if nothing has made it begin, whether the first has begun.
    local check = g[G_PART] > 1 and now + 2000000 or g[G_WAITS] == 1 and now or now + 60000000
    -- The shard of a predecessor may have lost the entry of this group, or its process may have been killed before it wrote one.
    if g[G_FAR_WAITS] > 0 and check > now then check = now < g[G_CREATED] + 2000000 and g[G_CREATED] + 2000000 or now + 30000000 end
    at = math.min(at or check, check)
  end
  return at
end

-- is_open reports whether a redrive has not taken all its jobs yet.
local function is_open(g) return g and g[G_OF] == 1 and g[G_SEALED] == 0 and g[G_STATUS] == CREATED end

-- retention returns when an ended group's outcomes, its dead letters and the group itself are deleted; and how many dead letters are left,
-- with the failed jobs whose payload is kept.
local function retention(g)
  local left = g[G_DEAD] - g[G_REDRIVEN] + g[G_KEPT]
  if g[G_DELETED] == 1 then return now, now, now, left end
  local jobs_at, dead_at = g[G_FINISHED] + set.keep_jobs, g[G_FINISHED] + set.keep_dead
  return jobs_at, dead_at, math.max(g[G_ROLLING] > 0 and 0 or g[G_FINISHED] + set.keep_groups, jobs_at, left > 0 and dead_at or 0), left
end

-- tally.complete reports whether all outcomes of a group were counted on arrival. A group that does not keep them is never reduced again: jobs
-- that an earlier version has ended are in its numbers, and only their error codes are missing.
function tally.complete(g) return g[G_TALLY] == ended(g) + 1 or (g[G_TALLY] > 0 and g[G_RESULTS] > 0) end

-- tally.conclude ends a group whose outcomes were all counted.
function tally.conclude(g)
  local bad = g[G_FAIL] + g[G_DEAD]
  local status = (g[G_BAD_SHARE] == 1 and bad * 100 > g[G_MOST_BAD] * g[G_TOTAL] or g[G_BAD_SHARE] == 0 and bad > g[G_MOST_BAD]) and FAILED or COMPLETED
  set_status(g, status)
  tally.ends[status] = tally.ends[status] + 1
  g[G_FINISHED], g[G_REDUCED] = now, ended(g)
  shard.open_groups = shard.open_groups - 1
  redis.call('HDEL', K.sums, g[G_KEY]) -- what a reducer of an earlier version began
  redis.call('ZADD', K.agenda, int((g[G_CALLBACK] == 1 or g[G_SHRUNK] > 0 or g[G_FAR_FOLLOWED] > 0) and now or now + math.min(set.keep_jobs, set.keep_groups, set.keep_dead)), g[G_KEY])
end

-- check_complete ends the running of a group whose jobs all have their outcome, and that waits for no others.
local function check_complete(g)
  if g[G_SEALED] == 1 and g[G_WAITS] == 0 and (g[G_STATUS] == DISPATCHED or g[G_STATUS] == RUNNING) and ended(g) == g[G_TOTAL] then
    if tally.complete(g) and g[G_PART] == 0 then
      tally.conclude(g)
      return
    end
    set_status(g, AGGREGATING)
    plan_tend(g, now)
  elseif g[G_STATUS] == CANCELLED and g[G_INFLIGHT] == 0 then
    plan_tend(g, now)
  end
end

-- seal_group ends the submission to a group.
local function seal_group(g)
  g[G_SEALED], g[G_SEALED_AT] = 1, now
  set_status(g, g[G_STARTED] > 0 and RUNNING or DISPATCHED)
  local by = tend_by(g)
  if by then redis.call('ZADD', K.agenda, int(by), g[G_KEY]) else redis.call('ZREM', K.agenda, g[G_KEY]) end
  check_complete(g)
end

-- tenant_open adds to the number of jobs that a tenant has to do, and keeps the set of tenants that have any.
local function tenant_open(t, by)
  local before = t[T_OPEN]
  t[T_OPEN] = before + by
  if before == 0 and t[T_OPEN] > 0 then
    redis.call('ZADD', K.busy, 0, t[T_NAME])
    t[T_WAS], t[T_SEEN] = t[T_WORK], 0
  elseif before > 0 and t[T_OPEN] == 0 then
    redis.call('ZREM', K.busy, t[T_NAME])
    t[T_JOBS], t[T_MEAN], t[T_BACKOFF] = 0, 0, 0
  end
end
