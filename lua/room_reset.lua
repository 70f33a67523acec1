#!lua flags=allow-oom
-- room_reset: empties the line; tokens from before are refused by their fence. Sessions stay.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit
-- ARGV: now, epoch, seq, policy, who, room
-- RETURNS: {OK, epoch, seq, fence, room time, wall}
-- INVARIANT: no ticket from before is admitted afterwards.
-- INCLUDE: clock, room
local s, err = open()
if not s then return err end
local n = redis.call('ZCARD', LINE) + redis.call('ZCARD', PARKED) + redis.call('ZCARD', ADMITTED)
-- Admitted and not claimed: at most the rate times the claim window.
local ids = redis.call('ZRANGE', ADMITTED, 0, -1)
for i = 1, #ids, 1000 do
  redis.call('HDEL', GRANTS, unpack(ids, i, math.min(#ids, i + 999)))
end
redis.call('UNLINK', LINE, PARKED, SEEN, ADMITTED, PENDING)
redis.call('DEL', SNAPSHOT)
s.fence = s.fence + 1
audit(s, ARGV[5], ARGV[6], 'reset', { { 'tickets', str(n), '0' } })
save_state(s)
return head(s)
