#!lua flags=allow-oom
-- room_revoke: ends sessions for every gateway.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, who, room, label, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall}
-- INVARIANT: a ticket is spent once (P4): its pass stops working and its ticket makes no other.
-- INCLUDE: clock, audit, seq, room, presence

-- Then ids. who is '' when an origin revokes, else the operator, and label the id in the form shown to people, for the audit log.
local s, err = open_room()
if not s then return err end
local p = policy()
for i = 8, #ARGV do
  local id = ARGV[i]
  remove_from_queue(id)
  revoke(s, p, id, 0)
end
if ARGV[5] ~= '' then
  audit(s, ARGV[5], ARGV[6], 'revoke', { { 'session', nil, ARGV[7] } })
end
return save_and_reply(s, {})
