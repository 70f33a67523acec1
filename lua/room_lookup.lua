#!lua flags=no-writes
-- room_lookup: tells of one ticket without touching it.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, id
-- RETURNS: {OK, epoch, seq, fence, order time, wall, state, order, seen, rank, wall of admission, reason}
-- INVARIANT: looking changes nothing.
-- INCLUDE: clock, room, presence

-- state: line, parked, admitted, claimed (a session), ended, or '' when unknown.
local s, err = open()
if not s then return err end
local id = ARGV[5]
local state, ord, rank, wall, reason = '', 0, 0, 0, ''
local line, parked = redis.call('ZSCORE', LINE, id), redis.call('ZSCORE', PARKED, id)
local seen = last_heard(id)
if seen > 0 then seen = s.time - (s.now - seen) end
if line then
  state, ord, rank = 'line', tonumber(line), redis.call('ZRANK', LINE, id)
elseif parked then
  state, ord = 'parked', tonumber(parked)
  rank = redis.call('ZCOUNT', LINE, '-inf', '(' .. parked)
else
  local g = grant(id)
  if g then
    wall, reason = g.wall, is_claimed(g) and 'claimed' or g.what
    if g.what == 'admitted' then
      state = 'admitted'
    elseif is_claimed(g) and num(redis.call('ZSCORE', SESSIONS, id)) > s.now then
      state = 'claimed'
    else
      state = 'ended'
    end
  elseif num(redis.call('ZSCORE', SESSIONS, id)) > s.now then
    state, reason = 'claimed', 'claimed'
  end
end
local answer = head(s)
answer[7], answer[8], answer[9], answer[10], answer[11], answer[12] = state, str(ord), str(seen), rank, str(wall), reason
return answer
