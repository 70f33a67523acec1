#!lua flags=allow-oom
-- room_seen: hears of enrolled tickets: renews their presence, un-parks them, tells who is admitted or ended.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, then for each group code, order, wall of admission, reason}
-- INVARIANT: a place survives while it is heard of (3); nothing is enrolled here, so it may run beyond maxmemory.
-- INCLUDE: clock, room, presence

-- Groups of three: id, client, hold (s). Codes as in room_enter, and U: the line does not hold it.
local s, err = open()
if not s then return err end
local p = policy()
local out = {}
for i = 5, #ARGV, 3 do
  local id = ARGV[i]
  local n = #out
  local code, wall, reason = settled(s, p, id, ARGV[i + 1])
  if code then
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = code, '0', str(wall), reason
  else
    local ord = waiting(s, p, id, num(ARGV[i + 2]))
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = ord and 'W' or 'U', str(ord or 0), '0', ''
  end
end
save_state(s)
local answer = head(s)
for i = 1, #out do answer[6 + i] = out[i] end
return answer
