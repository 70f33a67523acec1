#!lua flags=allow-oom
-- room_evacuate: ends every session and takes back the admissions that are not claimed. Visitors keep their orders.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, who, room, reason, again, most
-- RETURNS: {OK, epoch, seq, fence, order time, wall, number of admissions that are left to take back}
-- INVARIANT: no session that was claimed by then goes on, and a place survives (P3): its visitor may return at the order of arrival.
-- INCLUDE: clock, audit, seq, room

-- again is 0 for the evacuation itself, and 1 for the calls that continue it: admissions that are not claimed are taken back in steps of
-- most. Their visitors' next polls enrol them again. Nobody is admitted for HOLD, so that visitors can return first.
local s, err = open_room()
if not s then return err end
local most = tonumber(ARGV[9])
if ARGV[8] == '0' then
  local n = active(s)
  redis.call('UNLINK', SESSIONS)
  redis.call('DEL', SNAPSHOT)
  s.evacuated, s.evacuated_wall = s.time, s.wall
  -- Both clocks advance, so that what is claimed from now on is later than the evacuation.
  s.lead, s.adj = s.lead + 1, s.adj + 1
  s.time, s.now = s.time + 1, s.now + 1
  s.held = 0
  s.hold = math.max(s.hold, s.now + HOLD)
  s.busy = 1
  audit(s, ARGV[5], ARGV[6], 'evacuate', { { 'sessions', str(n), '0' }, { 'reason', nil, ARGV[7] } })
end
local till = str(room_time(s, s.evacuated))
local ids = redis.call('ZRANGEBYSCORE', ADMITTED, '-inf', till, 'LIMIT', 0, most)
for i = 1, #ids, 1000 do
  local last = math.min(#ids, i + 999)
  redis.call('HDEL', GRANTS, unpack(ids, i, last))
  redis.call('ZREM', ADMITTED, unpack(ids, i, last))
end
return save_and_reply(s, { redis.call('ZCOUNT', ADMITTED, '-inf', till) })
