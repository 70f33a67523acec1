#!lua flags=allow-oom
-- room_leave: removes tickets from the queue for good, by their owner or an operator.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, who, room, reason, label, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, then for each ticket 1 if it was there, else 0}
-- INVARIANT: a ticket is spent once (P4): an id that polled and left is remembered. Of those that left without a poll at most as many as a
-- front holds are remembered, and none that the queue does not hold.
-- INCLUDE: clock, audit, seq, room, presence, lottery

-- reason is left or removed. who is '' for a visitor, else the operator, and label the id in the form shown to people, for the audit log. Then groups of
-- three: id, and of a ticket in the pre-queue the fence and the order time at which it was confirmed last, else 0 and 0.
-- A ticket that is not remembered can poll again: its order then leads to the same place. So joins that are given up
-- immediately take no more of the store than those that are abandoned, also beyond maxmemory.
local s, err = open_room()
if not s then return err end
local p = policy()
update_lottery(s, p)
local who, room, reason = ARGV[5], ARGV[6], ARGV[7]

-- fits counts a ticket that left without a poll, and reports whether it is to be remembered.
local function fits()
  if s.now >= s.left_till then s.left, s.left_till = 0, s.now + p.absence + MEMORY end
  s.left = s.left + 1
  return s.left <= front(p)
end

-- quit notes that the visitor of a session has left: the session lasts until its pass ends, and keeps no order then.
local function quit(id, g)
  put_grant(id, 'quit', g.wall, g.claimed, g.client)
  remember(s, p, id)
end

-- leave removes a ticket that waits or is admitted, and returns 1 if it was there.
local function leave(id, g, fence, confirmed)
  local order = tonumber(redis.call('ZSCORE', QUEUE, id) or redis.call('ZSCORE', PARKED, id))
  -- The time of a check is room time in tenths of a second, rounded down; the order is order time.
  local polled = order and last_checked(id) > order - s.time + s.now
  -- A ticket from before a reset that its gateway does not know of yet is not in the pre-queue.
  local prequeued = confirmed > 0 and not g and p.prequeue and fence == s.fence
  if not p.prequeue then count_left(s, id, order) end
  local n = remove_from_queue(id) + redis.call('ZREM', ADMITTED, id)
  if reason ~= 'left' or g or polled or (order or confirmed > 0) and fits() then
    put_grant(id, reason, g and g.wall or 0, 0, '')
    remember(s, p, id)
    if prequeued then uncount_prequeued(s, p, confirmed) end
  end
  s.abandons = s.abandons + n
  if n > 0 then count_minute(s, 'x', n) end
  return n
end

local found, there = 0, {}
for i = 9, #ARGV, 3 do
  local id, n = ARGV[i], 0
  local g = grant(id)
  if g and g.what == 'claimed' and reason == 'left' then
    quit(id, g)
  elseif not g or g.what == 'admitted' then
    n = leave(id, g, tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
  end
  found = found + n
  there[#there + 1] = n
end
if prequeue_slots then save_prequeue(s, p) end
if who ~= '' and found > 0 then
  audit(s, who, room, 'remove_ticket', { { 'ticket', nil, ARGV[8] } })
end
return save_and_reply(s, there)
