#!lua flags=allow-oom
-- group_reduce: takes over the reduction of a group, commits a step of it, or ends the group with its result.
-- KEYS: state, names, groups, flow, index, tenants, high, normal, low, lines, idle, gates, jobs, runs, order, front,
--   ready, leases, waiting, refused, done, dead, chunks, agenda, sums, bell, history, busy, aside, lists,
--   uniques, lapses, links, batches
-- ARGV: now, settings, verb, group, fence, cursor, taken, state, status
-- RETURNS: {code, fence, cursor, state, and except for a commit the group}, {code} or {reason}
-- REPLY REDUCED: 1  the step was made
-- REPLY NOT_REDUCED: 0  another reducer has taken over, or it is too early
-- INVARIANT: outcomes that were counted are not reduced; state and cursor are written together; each outcome is reduced once,
--   and deleted after that where the group does not keep it; a group ends once.
-- INCLUDE: clock, limiter, fair, bulk, bulkqueue, bulklife, bulkjobs, bulkreply, outcomes

local g, gkey = named_group(ARGV[4])
if not g then return { 'not_found' } end
local verb, fence = ARGV[3], tonumber(ARGV[5])
local state = redis.call('HGET', K.sums, gkey)
local cursor, sum = '', ''
if state then
  local stop = string.find(state, '\n', 1, true)
  cursor, sum = string.sub(state, 1, stop - 1), string.sub(state, stop + 1)
end
if verb == 'begin' then
  if cursor == '!' or tally.complete(g) then return { 'wrong_state', g[G_STATUS] } end
  g[G_RFENCE] = g[G_RFENCE] + 1
elseif g[G_RFENCE] ~= fence then
  return { REPLY_NOT_REDUCED }
elseif verb == 'commit' then
  -- A repeated step (its reply was lost) counts once: a step that reduces anything moves the cursor.
  if cursor ~= ARGV[6] then g[G_REDUCED] = g[G_REDUCED] + tonumber(ARGV[7]) end
  cursor, sum = ARGV[6], ARGV[8]
  redis.call('HSET', K.sums, gkey, cursor .. '\n' .. sum)
  outcomes.drop(g, outcomes.STEP)
elseif verb == 'finish' then
  local reduces = g[G_STATUS] == AGGREGATING or (g[G_STATUS] == CANCELLED and g[G_SWEPT] == 1)
  if g[G_REDUCED] ~= ended(g) or not reduces then return { REPLY_NOT_REDUCED } end
  if g[G_STATUS] == AGGREGATING then
    set_status(g, tonumber(ARGV[9]))
    g[G_FINISHED] = now
    shard.open_groups = shard.open_groups - 1
  else
    g[G_SWEPT] = 2 -- and it has its result
  end
  sum = ARGV[8]
  redis.call('HSET', K.sums, gkey, '!\n' .. sum) -- a result, and no longer a reducer's state
  redis.call('ZADD', K.agenda, int(now), gkey)
end
bulk_save()
return { REPLY_REDUCED, int(g[G_RFENCE]), cursor, sum, verb ~= 'commit' and group_reply(g, true) or nil }
