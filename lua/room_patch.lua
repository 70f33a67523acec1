#!lua flags=allow-oom
-- room_patch: changes a room's live fields and writes the audit log.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, who, room, action, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, version; 0: a field has another value than the caller read, and nothing was changed}
-- INVARIANT: the version only grows, so that after a loss of data the newest change wins.
-- INCLUDE: clock, audit, limiter, seq, room, meter, live

-- Then groups of three: set or clear, field, value; match, field, the value that it must have; absent, field, '': it must have none; or note,
-- name, value: for the audit log alone.
local s, err = open_room()
if not s then return err end
for i = 8, #ARGV, 3 do
  local verb, value = ARGV[i], redis.call('HGET', LIVE, ARGV[i + 1])
  if verb == 'match' and value ~= ARGV[i + 2] or verb == 'absent' and value then return save_and_reply(s, { 0 }) end
end
local version = change_live(s, policy(), ARGV[5], ARGV[6], ARGV[7], 8)
return save_and_reply(s, { version })
