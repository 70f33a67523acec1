#!lua flags=allow-oom
-- room_reset: empties the line; tokens from before are refused by their fence. Sessions stay.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, who, room, since, most
-- RETURNS: {OK, epoch, seq, fence, order time, wall, how many are left to forget}
-- INVARIANT: no ticket from before is admitted afterwards.
-- INCLUDE: clock, room, lottery

-- since is 0 for the reset itself, and the order time of that for the calls that go on with it: those who are admitted and
-- have not claimed, as many as the rate times the claim window, are forgotten most at a time.
local s, err = open()
if not s then return err end
local most = tonumber(ARGV[8])
local since = room_time(s, tonumber(ARGV[7]))
if ARGV[7] == '0' then
  since = s.now
  local n = redis.call('ZCARD', LINE) + redis.call('ZCARD', PARKED) + redis.call('ZCARD', ADMITTED)
  redis.call('UNLINK', LINE, PARKED, SEEN, PENDING, JOINS)
  redis.call('DEL', SNAPSHOT)
  s.fence, s.reset = s.fence + 1, s.time
  no_lots(s)
  audit(s, ARGV[5], ARGV[6], 'reset', { { 'tickets', str(n), '0' } })
end
local ids = redis.call('ZRANGEBYSCORE', ADMITTED, '-inf', str(since), 'LIMIT', 0, most)
for i = 1, #ids, 1000 do
  local last = math.min(#ids, i + 999)
  redis.call('HDEL', GRANTS, unpack(ids, i, last))
  redis.call('ZREM', ADMITTED, unpack(ids, i, last))
end
save_state(s)
local answer = head(s)
answer[7] = redis.call('ZCOUNT', ADMITTED, '-inf', str(since))
return answer
