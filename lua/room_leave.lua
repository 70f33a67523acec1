#!lua flags=allow-oom
-- room_leave: takes tickets out of the line for good, by their owner or an operator.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, who, room, reason, label, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, then for each id 1 if it was there, else 0}
-- INVARIANT: a ticket is spent once (4): an id that polled and left is remembered. Of those that left without a poll at most a
-- front's worth is, and none that the queue does not hold.
-- INCLUDE: clock, room, presence, lottery

-- reason is left or removed; then pairs: an id, and, if it gathers for a lottery, fence and order time at which it was heard
-- last ('fence:time'), else ''. who is '' for a visitor, else the operator, and label the id as people write it, for the audit log.
-- A ticket that is not remembered can be polled with again: its order then makes the place that it made before. So joins that
-- are given up at once take no more of the store than those that are left alone, also beyond maxmemory.
local s, err = open()
if not s then return err end
local p = policy()
draw(s, p)
local who, room, reason = ARGV[5], ARGV[6], ARGV[7]
local found, there = 0, {}

-- fits counts one that left without a poll, and reports whether it is to be remembered.
local function fits()
  if s.now >= s.left_till then s.left, s.left_till = 0, s.now + p.absence + MEMORY end
  s.left = s.left + 1
  return s.left <= front(p)
end

for i = 9, #ARGV, 2 do
  local id = ARGV[i]
  local g = grant(id)
  there[#there + 1] = 0
  if g and g.what == 'claimed' and reason == 'left' then
    -- Its session goes on until its pass ends, and keeps no order then.
    put_grant(id, 'quit', g.wall, g.claimed, g.client)
    remember(s, p, id)
  elseif not g or g.what == 'admitted' then
    local ord = tonumber(redis.call('ZSCORE', LINE, id) or redis.call('ZSCORE', PARKED, id))
    -- When it was heard is kept in room time, tenths of a second, rounded down; its order is order time.
    local polled = ord and last_heard(id) > ord - s.time + s.now
    local fence, seen = string.match(ARGV[i + 1], '^(%d+):(%d+)$')
    -- One from before a reset, of which its gateway has not heard yet, is not among those who gather.
    local gathers = seen and not g and p.gathering and tonumber(fence) == s.fence
    local n = out_of_line(id) + redis.call('ZREM', ADMITTED, id)
    if reason ~= 'left' or g or polled or (ord or seen) and fits() then
      put_grant(id, reason, g and g.wall or 0, 0, '')
      remember(s, p, id)
      if gathers then lot_left(s, p, tonumber(seen)) end
    end
    found = found + n
    there[#there] = n
    s.abandons = s.abandons + n
    if n > 0 then count_minute(s, 'x', n) end
  end
end
if slots then count_lots(s, p) end
if who ~= '' and found > 0 then
  audit(s, who, room, 'remove_ticket', { { 'ticket', nil, ARGV[8] } })
end
save_state(s)
local answer = head(s)
for i, n in ipairs(there) do answer[6 + i] = n end
return answer
