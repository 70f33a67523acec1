-- returns: the visitor of a session that is over, who comes back with its pass and has to wait again.

-- What the pass says, as returns and account have it: the session's id, and 'order:fence:end', the end in seconds of Redis's clock.
local function read_pass(back)
  local ord, fn, ends = string.match(string.sub(back, 17), '^(%d+):(%d+):(%d+)$')
  return { session = string.sub(back, 1, 16), ord = tonumber(ord), fn = tonumber(fn), ends = tonumber(ends) * 1000000 }
end

-- STILL is how long after the end of a pass a session may be heard of by that pass: the leeway of tokens, and a heartbeat's delay.
local STILL = 10000000

-- kept returns the order that the visitor of a session keeps; nil: none. A session gives one place, and one that was revoked, or
-- whose visitor has left, none. Nor does one that goes on with a newer pass: an old pass of it is worth nothing.
local function kept(s, p, pass)
  local g = grant(pass.session)
  if g and g.what ~= 'claimed' or redis.call('ZSCORE', REVOKED, pass.session) then return nil end
  if pass.fn < s.fence or pass.ord <= s.reset or p.gathering then return nil end
  local over = age(s, pass.ends + s.lead)
  if over < 0 or over > absence_of(s, p, s.now - over, 0) then return nil end
  local forgotten = redis.call('ZSCORE', SESSIONS, pass.session)
  if forgotten and session_heard(tonumber(forgotten)) > s.now - over + STILL then return nil end
  return math.min(pass.ord, s.time)
end

-- give_back ends the session of a pass: its visitor has a place for it. It is remembered for as long as a pass of the session
-- can bring anybody back.
local function give_back(s, p, pass, id)
  local till = revoke(s, p, pass.session, 0)
  local g = grant(pass.session)
  put_grant(pass.session, 'returned', g.wall, till, id)
  redis.call('ZADD', ENDED, 'GT', str(till + p.absence), pass.session)
end
