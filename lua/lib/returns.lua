-- returns: the visitor of an ended session, who returns with its pass and has to wait again.

-- read_pass parses a pass: the session's id, and 'order:fence:end:evacuated', the end in seconds of Redis's clock, 0 where the session ended because its
-- visitor was silent; evacuated is 1 for a pass from before an evacuation, else 0.
local function read_pass(pass)
  local order, fence, ends, evacuated = string.match(string.sub(pass, 17), '^(%d+):(%d+):(%d+):([01])$')
  return { session = string.sub(pass, 1, 16), order = tonumber(order), fence = tonumber(fence), ends = tonumber(ends) * 1000000, evacuated = evacuated == '1' }
end

-- LATE_HEARTBEAT is how long after the end of a pass a heartbeat of its session may arrive: the leeway of tokens, and a heartbeat's delay.
local LATE_HEARTBEAT = 10000000

-- order_after_silence returns the order that a visitor keeps whose session ended by silence, or nil where the session goes on or ended more
-- than absence ago. An evacuation also ends a session that the store has no record of.
local function order_after_silence(s, p, pass)
  local beat = last_heartbeat(p, pass.session)
  if not pass.evacuated and (not beat or session_counts(s, p, pass.session, s.now)) then return nil end
  local over = beat and math.max(0, s.now - beat - 1.5 * p.ttl) or age(s, s.evacuated)
  return over <= absence_of(s, p, s.now - over, 0) and math.min(pass.order, s.time) or nil
end

-- kept_order returns the order that the visitor of a session keeps, or nil. A session leads to one place. A session that was revoked,
-- whose visitor has left, or that continues with a newer pass leads to none.
local function kept_order(s, p, pass)
  local g = grant(pass.session)
  if g and g.what ~= 'claimed' or redis.call('ZSCORE', REVOKED, pass.session) then return nil end
  if pass.fence < s.fence or pass.order <= s.reset or p.prequeue then return nil end
  if pass.ends == 0 then return order_after_silence(s, p, pass) end
  local over = age(s, pass.ends + s.lead)
  if over < 0 or over > absence_of(s, p, s.now - over, 0) then return nil end
  local score = redis.call('ZSCORE', SESSIONS, pass.session)
  if score and session_renewed_at(tonumber(score)) > s.now - over + LATE_HEARTBEAT then return nil end
  return math.min(pass.order, s.time)
end

-- close_returned_session ends the session of a pass whose visitor has the place id for it. It is remembered for as long as a pass of the
-- session can bring a visitor back.
local function close_returned_session(s, p, pass, id)
  local till = revoke(s, p, pass.session, 0)
  local g = grant(pass.session)
  put_grant(pass.session, 'returned', g.wall, till, id)
  redis.call('ZADD', ENDED, 'GT', str(till + p.absence), pass.session)
end
