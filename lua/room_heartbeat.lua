#!lua flags=allow-oom
-- room_heartbeat: renews sessions, registers those whose pass was signed while the store was away, and finds those that have ended.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, then code and id of each session that does not go on}
-- REPLY REVOKED: 'R'  the session was revoked
-- REPLY SILENT:  'Z'  the session no longer counted at the time from, or was claimed before an evacuation
-- INVARIANT: max_active counts every session that is alive (P1); a revoked session stays revoked.
-- INCLUDE: clock, seq, room, sessions, presence

-- Groups of four: id, client, wall of admission, from; client and wall are '' and 0 except for a session that was made without the store, whose
-- client may repeat its claim. from is '' where the gateway knows that the session goes on. Else it is the order time at which the gateway
-- accepted the session's pass while it could not ask, or 0 if it asks now: the session is renewed only if it counted at that time.
local s, err = open_room()
if not s then return err end
local p = policy()
local over = {}

local function put_over(code, id)
  over[#over + 1] = code
  over[#over + 1] = id
end

local function remember_session(id)
  remember(s, p, id)
  redis.call('ZADD', ENDED, 'GT', str(s.now + session_memory(p)), id)
end

-- evacuated reports whether a session has ended by an evacuation. wall: of the admission of a session that was made without the store.
local function evacuated(id, wall)
  if s.evacuated == 0 then return false end
  local g = grant(id)
  if g then return is_claimed(g) and before_evacuation(s, g.claimed) end
  return wall > 0 and wall <= s.evacuated_wall
end

for i = 5, #ARGV, 4 do
  local id = ARGV[i]
  local from = ARGV[i + 3]
  if redis.call('ZSCORE', REVOKED, id) then
    put_over(REPLY_REVOKED, id)
  elseif evacuated(id, tonumber(ARGV[i + 2])) then
    put_over(REPLY_SILENT, id)
  elseif from ~= '' and not session_counted_at(s, p, id, tonumber(from)) then
    put_over(REPLY_SILENT, id)
  else
    keep_session(s, p, id)
    local g = grant(id)
    if not g or g.what == 'admitted' then
      -- Its pass was signed while the store was away: it must not be admitted, claimed or counted again.
      remove_from_queue(id)
      redis.call('ZREM', ADMITTED, id)
      put_grant(id, 'claimed', g and g.wall or tonumber(ARGV[i + 2]), s.now, ARGV[i + 1])
      remember_session(id)
    elseif is_claimed(g) then
      remember_session(id) -- the time of its admission and its client are kept as long as the session
    end
  end
end
s.busy = 1
return save_and_reply(s, over)
