#!lua flags=allow-oom
-- room_rate: makes one gateway the leader of an adaptive room, and sets the rate that the leader found.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, gateway, fence, rate, control
-- RETURNS: {OK, epoch, seq, fence, order time, wall, fence of the leader (0: another gateway leads), rate that was found, control}
-- INVARIANT: of two gateways that consider themselves the leader, only the one with the newer fence sets the rate.
-- INCLUDE: clock, seq, room

-- fence: that of the caller's lead, 0 for none; rate: thousandths, 0 to keep the present one; control: what the next leader needs to
-- continue, which is replied to a gateway that has just become the leader.
local LEASE = 3000000

local s, err = open_room()
if not s then return err end
local p = policy()
local me, fence, rate = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local h = redis.call('HMGET', STATE, 'leader', 'leader_till', 'control')
local till = num(h[2])
if h[1] and h[1] ~= me and till > s.wall and till <= s.wall + LEASE then
  local reply = reply_head(s)
  reply[7], reply[8], reply[9] = '0', str(s.target), ''
  return reply
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
return save_and_reply(s, { str(s.target_fence), str(s.target), control })
