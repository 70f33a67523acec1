#!lua flags=allow-oom
-- room_rate: makes one gateway the leader of an adaptive room, and takes the rate that it found.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, gateway, fence, rate, control
-- RETURNS: {OK, epoch, seq, fence, order time, wall, fence of the leader (0: it is another), rate that was found, control}
-- INVARIANT: of two that take themselves for the leader, only the one with the newer fence is heard.
-- INCLUDE: clock, room

-- fence: that the caller leads with, 0 for none; rate: thousandths, 0 to keep what is there; control: what the next leader
-- needs to go on. It is answered to whoever has just become the leader.
local LEASE = 3000000
local s, err = open()
if not s then return err end
local p = policy()
local me, fence, rate = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local h = redis.call('HMGET', STATE, 'leader', 'leader_till', 'control')
local till = num(h[2])
local answer
if h[1] and h[1] ~= me and till > s.wall and till <= s.wall + LEASE then
  answer = head(s)
  answer[7], answer[8], answer[9] = '0', str(s.target), ''
  return answer
end
local control = ''
if h[1] ~= me or fence == 0 or fence ~= s.target_fence then
  s.target_fence = s.target_fence + 1
  control = h[3] or ''
elseif rate > 0 then
  s.target = math.min(p.max_rate, math.max(p.min_rate, rate))
  redis.call('HSET', STATE, 'control', ARGV[8])
end
redis.call('HSET', STATE, 'leader', me, 'leader_till', str(s.wall + LEASE))
save_state(s)
answer = head(s)
answer[7], answer[8], answer[9] = str(s.target_fence), str(s.target), control
return answer
