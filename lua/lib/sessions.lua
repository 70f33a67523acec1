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

-- session_counts reports whether a session counted at a room time. A session that this store may have lost counts: it was begun less than
-- a ttl before, and may have had a heartbeat just before the loss.
local function session_counts(s, p, id, at)
  return num(redis.call('ZSCORE', SESSIONS, id)) >= at or at < s.born + p.ttl
end

-- session_memory returns for how long beyond its last heartbeat a session is remembered in ENDED, so that its visitor keeps the order for
-- absence after the end. In rooms where the pass has an end of its own (life is ttl), it is that of other ended ids.
local function session_memory(p) return p.absence + (p.life > p.ttl and math.max(MEMORY, 1.5 * p.ttl) or MEMORY) end

-- last_heartbeat returns the time of the last heartbeat of a session that no longer counts, nil where it is forgotten.
local function last_heartbeat(p, id)
  local till = redis.call('ZSCORE', ENDED, id)
  return till and tonumber(till) - session_memory(p)
end

-- session_counted_at reports whether a session counted at a moment of order time (0: now), before which its gateway could not ask. A
-- session that is forgotten counted if the gateway was cut off for longer than sessions are remembered.
local function session_counted_at(s, p, id, time)
  local at = time > 0 and math.min(s.now, room_time(s, time)) or s.now
  if session_counts(s, p, id, at) then return true end
  if at == s.now then return false end
  local beat = last_heartbeat(p, id)
  if beat then return beat + 1.5 * p.ttl >= at end
  return at < s.now - session_memory(p)
end
