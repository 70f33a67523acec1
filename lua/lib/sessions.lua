-- sessions: how long a session counts.

-- A session counts until its score: 1.5 ttl after it was last heard of, in whole units of room time, and in what is below a unit
-- the ttl in seconds, so that where ttl has been changed since it is still known when that was. A ttl that is lowered shortens no
-- session that there is: its pass is good for as long as before.
local UNIT = 131072 -- µs; the longest ttl is 86400 s

-- keep_session has a session count, from now on or for so many µs (left). One that counts for longer already, by a ttl that has been
-- lowered since, goes on to, and is known to be heard of now.
local function keep_session(s, p, id, left)
  local till = math.ceil((s.now + (left or 1.5 * p.ttl)) / UNIT) * UNIT
  if redis.call('ZADD', SESSIONS, 'GT', 'CH', str(till + math.ceil(p.ttl / 1000000)), id) == 1 or left then return end
  local score = tonumber(redis.call('ZSCORE', SESSIONS, id))
  till = score - score % UNIT
  redis.call('ZADD', SESSIONS, str(till + math.ceil((till - s.now) / 1500000)), id)
end

-- session_heard returns when the session of a score was last heard of, at most some seconds too early.
local function session_heard(score) return score - (1 + 1500000) * (score % UNIT) end
