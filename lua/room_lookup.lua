#!lua flags=no-writes
-- room_lookup: reads the state of one ticket.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, id
-- RETURNS: {OK, epoch, seq, fence, order time, wall, state, order, when it was last checked (order time), rank, wall of admission, reason};
--   state is waiting, parked, admitted, claimed (a session), ended, or '' when unknown
-- INVARIANT: reads only.
-- INCLUDE: clock, seq, room, presence

local s, err = open_room()
if not s then return err end
local id = ARGV[5]

local function has_session() return num(redis.call('ZSCORE', SESSIONS, id)) > s.now end

-- of_grant returns the state, the wall time of admission and the reason of a ticket that does not wait.
local function of_grant(g)
  if not g then
    if has_session() then return 'claimed', 0, 'claimed' end
    return '', 0, ''
  end
  local reason = is_claimed(g) and 'claimed' or g.what
  if g.what == 'admitted' then return 'admitted', g.wall, reason end
  return is_claimed(g) and has_session() and 'claimed' or 'ended', g.wall, reason
end

local state, order, rank, wall, reason = '', 0, 0, 0, ''
local queued, parked = redis.call('ZSCORE', QUEUE, id), redis.call('ZSCORE', PARKED, id)
if queued then
  state, order, rank = 'waiting', tonumber(queued), redis.call('ZRANK', QUEUE, id)
elseif parked then
  state, order, rank = 'parked', tonumber(parked), redis.call('ZCOUNT', QUEUE, '-inf', '(' .. parked)
else
  state, wall, reason = of_grant(grant(id))
end
local checked = last_checked(id)
if checked > 0 then checked = s.time - (s.now - checked) end
local reply = reply_head(s)
reply[7], reply[8], reply[9], reply[10], reply[11], reply[12] = state, str(order), str(checked), rank, str(wall), reason
return reply
