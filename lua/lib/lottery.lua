-- lottery: the opening of a room that is drawn.

-- spread is the time within which all who gathered for a lottery are told to poll after its opening.
local function spread(s, p)
  local us = p.polls > 0 and math.floor(s.prequeued * 1000000 / p.polls) or 0
  return math.max(1000000, math.min(us, math.floor(p.absence / 4)))
end

-- draw keeps the lottery of a policy: it sets p.gathering before the opening, which it
-- notes, once, as the room time of the first call after it; true for that call. Those
-- who were confirmed before have seconds to say so, in which nobody is admitted: a low
-- number is not beaten by an early poll. A gateway whose configuration is older has no say.
local LATE = 3000000
local function draw(s, p)
  if p.lottery == 0 or p.opens == 0 then return false end
  local before = s.drawn
  if s.drawn > 0 and p.opens > s.opens then s.drawn, s.prequeued = 0, 0 end
  if s.drawn == 0 then
    s.opens = p.opens
    if s.wall >= s.opens then
      s.drawn = s.now
      if s.prequeued > 0 then s.hold = math.max(s.hold, s.now + spread(s, p) + LATE) end
    end
  end
  p.gathering = s.drawn == 0
  return s.drawn > before
end
