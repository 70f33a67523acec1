#!lua flags=allow-oom
-- room_heartbeat: renews sessions, and registers those whose pass was signed while the store was away.
-- KEYS: state, live, queue, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, then the ids that are revoked}
-- INVARIANT: max_active counts every session that is alive (P1); a revoked session stays revoked.
-- INCLUDE: clock, room, sessions, presence

-- Groups of three: id, client, wall of admission; client and wall are '' and 0 except for a session that was made without the store, whose
-- client may repeat its claim.
local s, err = open_room()
if not s then return err end
local p = policy()
local revoked = {}
for i = 5, #ARGV, 3 do
  local id = ARGV[i]
  if redis.call('ZSCORE', REVOKED, id) then
    revoked[#revoked + 1] = id
  else
    keep_session(s, p, id)
    local g = grant(id)
    if not g or g.what == 'admitted' then
      -- Its pass was signed while the store was away: it must not be admitted, claimed or counted again.
      remove_from_queue(id)
      redis.call('ZREM', ADMITTED, id)
      put_grant(id, 'claimed', g and g.wall or tonumber(ARGV[i + 2]), s.now, ARGV[i + 1])
      remember(s, p, id)
    elseif is_claimed(g) then
      remember(s, p, id) -- the time of its admission and its client are kept as long as the session
    end
  end
end
s.busy = 1
return save_and_reply(s, revoked)
