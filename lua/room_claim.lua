#!lua flags=allow-oom
-- room_claim: exchanges admitted tickets for sessions.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, then for each group code, order, wall of admission, reason}
-- INVARIANT: a ticket is spent once (4); the same client may repeat its claim within the claim window.
-- INCLUDE: clock, room, sessions

-- Groups of two: id, client. Codes: C claimed, W not yet (nor within SETTLE after
-- a loss of data, room_restore), L, E, X as in room_enter, U unknown. The reason of
-- the claim that makes the session is first, that of a repeat ''.
local s, err = open()
if not s then return err end
local p = policy()
local out = {}
for i = 5, #ARGV, 2 do
  local id, client = ARGV[i], ARGV[i + 1]
  local ord = 0
  local code, wall, reason = settled(s, p, id, client)
  if code == 'A' and s.now < s.settle then
    code = 'W'
  elseif code == 'A' then
    keep_session(s, p, id)
    put_grant(id, 'claimed', wall, s.now, client)
    remember(s, p, id)
    redis.call('ZREM', ADMITTED, id)
    s.claims = s.claims + 1
    s.busy = 1
    code, reason = 'C', 'first'
  elseif not code then
    ord = num(redis.call('ZSCORE', LINE, id) or redis.call('ZSCORE', PARKED, id))
    code, wall, reason = ord > 0 and 'W' or 'U', 0, ''
  end
  local n = #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = code, str(ord), str(wall), reason
end
save_state(s)
local answer = head(s)
for i = 1, #out do answer[6 + i] = out[i] end
return answer
