#!lua flags=allow-oom
-- room_seen: renews the presence of enrolled tickets, returns parked ones to the queue, and replies which are admitted or ended.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, then for each group code, order, wall of admission, reason}
-- INVARIANT: a place survives while its visitor polls (P3); nothing is enrolled here, so it may run beyond maxmemory.
-- INCLUDE: clock, seq, room, presence

-- Groups of three: id, client, hold (s).
local s, err = open_room()
if not s then return err end
local p = policy()
local out = {}
for i = 5, #ARGV, 3 do
  local id, n = ARGV[i], #out
  local code, wall, reason = admission_state(s, p, id, ARGV[i + 1])
  if code then
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = code, '0', str(wall), reason
  else
    local order = renew_waiting(s, p, id, num(ARGV[i + 2]))
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = order and REPLY_WAITING or REPLY_UNKNOWN, str(order or 0), '0', ''
  end
end
return save_and_reply(s, out)
