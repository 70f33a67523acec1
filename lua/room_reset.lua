#!lua flags=allow-oom
-- room_reset: empties the queue; tokens from before are refused by their fence. Sessions stay.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, who, room, since, most
-- RETURNS: {OK, epoch, seq, fence, order time, wall, number of admissions that are left to remove}
-- INVARIANT: no ticket from before is admitted afterwards.
-- INCLUDE: clock, audit, seq, room, lottery

-- since is 0 for the reset itself, and its order time for the calls that continue it: admissions that are not claimed, as many as the rate
-- times the claim window, are removed in steps of most.
local s, err = open_room()
if not s then return err end
local most = tonumber(ARGV[8])
local since = room_time(s, tonumber(ARGV[7]))
if ARGV[7] == '0' then
  since = s.now
  local n = redis.call('ZCARD', QUEUE) + redis.call('ZCARD', PARKED) + redis.call('ZCARD', ADMITTED)
  redis.call('UNLINK', QUEUE, PARKED, SEEN, PENDING, JOINS)
  redis.call('DEL', SNAPSHOT)
  s.fence, s.reset = s.fence + 1, s.time
  clear_prequeue(s)
  audit(s, ARGV[5], ARGV[6], 'reset', { { 'tickets', str(n), '0' } })
end
local ids = redis.call('ZRANGEBYSCORE', ADMITTED, '-inf', str(since), 'LIMIT', 0, most)
for i = 1, #ids, 1000 do
  local last = math.min(#ids, i + 999)
  redis.call('HDEL', GRANTS, unpack(ids, i, last))
  redis.call('ZREM', ADMITTED, unpack(ids, i, last))
end
return save_and_reply(s, { redis.call('ZCOUNT', ADMITTED, '-inf', str(since)) })
