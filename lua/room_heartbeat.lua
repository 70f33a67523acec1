#!lua flags=allow-oom
-- room_heartbeat: keeps sessions, and registers those whose pass was minted while the store was away.
-- KEYS: state, live, line, parked, seen, admitted, sessions, ended, grants, revoked, flow, pending, minutes, gateways, snapshot, audit, joins
-- ARGV: now, epoch, seq, policy, ...
-- RETURNS: {OK, epoch, seq, fence, order time, wall, then the ids that are revoked}
-- INVARIANT: max_active counts every session that is alive (1); a revoked session stays revoked.
-- INCLUDE: clock, room, sessions, presence

-- Groups of three: id, client, wall of admission; client and wall are '' and 0 but for
-- a session that was made without the store, whose client may repeat its claim.
local s, err = open()
if not s then return err end
local p = policy()
local answer = {}
for i = 5, #ARGV, 3 do
  local id = ARGV[i]
  if redis.call('ZSCORE', REVOKED, id) then
    answer[#answer + 1] = id
  else
    keep_session(s, p, id)
    -- Registered without a claim here, as its pass was minted while the store
    -- was away: it must not be admitted, claimed or counted again.
    local g = grant(id)
    if not g or g.what == 'admitted' then
      out_of_line(id)
      redis.call('ZREM', ADMITTED, id)
      put_grant(id, 'claimed', g and g.wall or tonumber(ARGV[i + 2]), s.now, ARGV[i + 1])
      remember(s, p, id)
    elseif is_claimed(g) then
      remember(s, p, id) -- when it was admitted, and by which client, is kept as long as the session
    end
  end
end
s.busy = 1
save_state(s)
local h = head(s)
for i = 1, #answer do h[6 + i] = answer[i] end
return h
