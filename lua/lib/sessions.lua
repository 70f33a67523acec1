-- sessions: how long a session counts.

-- A session counts until its score: 1.5 ttl after its last heartbeat, in whole units of room time. The part below a unit is the ttl in
-- seconds, so that the time of the heartbeat is known after the ttl was changed. A lower ttl shortens no existing session: its pass stays
-- valid for as long as before.
local UNIT = 131072 -- µs; the longest ttl is 86400 s

-- keep_session counts a session from now on, or for left µs. A session that counts for longer already, by a ttl that has been lowered
-- since, keeps its end, and has its heartbeat now.
local function keep_session(s, p, id, left)
  local till = math.ceil((s.now + (left or 1.5 * p.ttl)) / UNIT) * UNIT
  if redis.call('ZADD', SESSIONS, 'GT', 'CH', str(till + math.ceil(p.ttl / 1000000)), id) == 1 or left then return end
  local score = tonumber(redis.call('ZSCORE', SESSIONS, id))
  till = score - score % UNIT
  redis.call('ZADD', SESSIONS, str(till + math.ceil((till - s.now) / 1500000)), id)
end

-- session_renewed_at returns the time of a session's last heartbeat by its score, at most some seconds too early.
local function session_renewed_at(score) return score - (1 + 1500000) * (score % UNIT) end
