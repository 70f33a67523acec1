#!lua flags=allow-oom
-- room_leave: takes tickets out of the line for good, by their owner or an operator.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, who, room, reason, label, ...
-- RETURNS: {OK, epoch, seq, fence, room time, wall, how many were there}
-- INVARIANT: a ticket is spent once (4): an id that left is remembered, whether the line held it or not.
-- INCLUDE: clock, room, presence, lottery

-- reason is left or removed; then pairs: an id, and, if it gathers for a lottery, fence and room time at which it was heard
-- last ('fence:time'), else ''. who is '' for a visitor, else the operator, and label the id as people write it, for the audit log.
local s, err = open()
if not s then return err end
local p = policy()
draw(s, p)
local who, room, reason = ARGV[5], ARGV[6], ARGV[7]
local found = 0
for i = 9, #ARGV, 2 do
  local id = ARGV[i]
  local g = grant(id)
  if not g or g.what == 'admitted' then
    local n = out_of_line(id) + redis.call('ZREM', ADMITTED, id)
    put_grant(id, reason, g and g.wall or 0, 0, '')
    remember(s, p, id)
    found = found + n
    s.abandons = s.abandons + n
    if n > 0 then count_minute(s, 'x', n) end
    local fence, seen = string.match(ARGV[i + 1], '^(%d+):(%d+)$')
    -- One from before a reset, of which its gateway has not heard yet, is not among those who gather.
    if seen and not g and p.gathering and tonumber(fence) == s.fence then lot_left(s, p, tonumber(seen)) end
  end
end
if slots then count_lots(s, p) end
if who ~= '' and found > 0 then
  audit(s, who, room, 'remove_ticket', { { 'ticket', nil, ARGV[8] } })
end
save_state(s)
local answer = head(s)
answer[7] = found
return answer
