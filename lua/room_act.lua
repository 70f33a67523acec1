#!lua flags=allow-oom
-- room_act: replaces the record of a ramp or an alarm and changes live fields, if the record still has the version that the caller read.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, who, room, action, record, version, text, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, 1 if the record was replaced, else 0}
-- INVARIANT: of several gateways that take the same step, one takes it.
-- INCLUDE: clock, audit, limiter, seq, room, meter, live

-- Then groups of three: set or clear, field, value. Without any the audit log has an entry only where action is not ''.
local s, err = open_room()
if not s then return err end
local p = policy()
local record = ARGV[8]
local version = read_record(record)
if version ~= tonumber(ARGV[9]) then return save_and_reply(s, { 0 }) end
write_record(s, record, version + 1, '', ARGV[10])
if #ARGV > 10 then
  change_live(s, p, ARGV[5], ARGV[6], ARGV[7], 11, record == 'ramp')
else
  if ARGV[7] ~= '' then audit(s, ARGV[5], ARGV[6], ARGV[7], {}) end
  redis.call('DEL', SNAPSHOT)
end
return save_and_reply(s, { 1 })
