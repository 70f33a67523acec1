#!lua flags=allow-oom
-- room_claim: exchanges admitted tickets for sessions.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, then for each group code, order, wall of admission, reason}
-- INVARIANT: a ticket is spent once (P4); the same client may repeat its claim within the claim window.
-- INCLUDE: clock, seq, room, sessions

-- Groups of two: id, client. A ticket that is admitted is WAITING while s.settle lasts after a loss of data (room_restore). The
-- claim that makes the session has the reason first, a repeated claim ''.
local s, err = open_room()
if not s then return err end
local p = policy()

local function claim(id, client)
  local code, wall, reason = admission_state(s, p, id, client)
  if not code then
    local order = num(redis.call('ZSCORE', QUEUE, id) or redis.call('ZSCORE', PARKED, id))
    return order > 0 and REPLY_WAITING or REPLY_UNKNOWN, order, 0, ''
  end
  if code ~= REPLY_ADMITTED then return code, 0, wall, reason end
  if s.now < s.settle then return REPLY_WAITING, 0, wall, reason end
  keep_session(s, p, id)
  put_grant(id, 'claimed', wall, s.now, client)
  remember(s, p, id)
  redis.call('ZREM', ADMITTED, id)
  s.claims = s.claims + 1
  s.busy = 1
  return REPLY_ACTIVE, 0, wall, 'first'
end

local out = {}
for i = 5, #ARGV, 2 do
  local code, order, wall, reason = claim(ARGV[i], ARGV[i + 1])
  local n = #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = code, str(order), str(wall), reason
end
return save_and_reply(s, out)
