-- lottery: the opening of a room that is drawn, and the number of tickets in its pre-queue.

-- poll_spread returns the time within which all of the pre-queue are advised to poll after the opening.
local function poll_spread(s, p)
  local us = p.polls > 0 and math.floor(s.prequeued * 1000000 / p.polls) or 0
  return math.max(1000000, math.min(us, math.floor(p.absence / 4)))
end

-- longest_advised returns the longest poll interval that the pre-queue is advised (gateway/pace: Gathering), with its jitter, by the absence
-- of today or that by which the pre-queue was counted last.
local function longest_advised(s, p)
  local absence = math.max(p.absence, num(redis.call('HGET', STATE, 'slots_absence')))
  return math.ceil(1.2 * math.min(math.max(60000000, poll_spread(s, p)), absence / 4))
end

-- Only the number of tickets in the pre-queue is kept, in slots of an eighth of absence: {till, n}, ascending, each with the tickets that
-- were confirmed last before till (order time) and not before the till of the slot ahead. A ticket that is confirmed again moves to the
-- newest slot, by the time in its token. So a ticket that leaves is no longer counted, and a ticket that falls silent stops counting at most an
-- eighth of absence too late. The number never underestimates: a token that is shown again after it was renewed elsewhere moves another
-- ticket's count, and that ticket is counted again with its next poll.
local SLOTS = 32
local prequeue_slots

local function load_prequeue(s)
  if prequeue_slots then return end
  prequeue_slots = {}
  local sum = 0
  for till, n in string.gmatch(redis.call('HGET', STATE, 'slots') or '', '(%d+):(%d+)') do
    prequeue_slots[#prequeue_slots + 1] = { till = tonumber(till), n = tonumber(n) }
    sum = sum + tonumber(n)
  end
  -- A store that was restored has only the sum.
  if s.prequeued > sum then
    if #prequeue_slots == 0 then prequeue_slots[1] = { till = s.time, n = 0 } end
    prequeue_slots[1].n = prequeue_slots[1].n + s.prequeued - sum
  end
end

local function prequeue_slot(seen)
  for _, slot in ipairs(prequeue_slots) do
    if slot.till > seen then return slot end
  end
end

-- count_prequeued counts a ticket of the pre-queue; seen is when it was confirmed before, nil for the first time.
local function count_prequeued(s, p, seen)
  load_prequeue(s)
  if #prequeue_slots == 0 or prequeue_slots[#prequeue_slots].till <= s.time then
    prequeue_slots[#prequeue_slots + 1] = { till = s.time + math.floor(p.absence / 8), n = 0 }
  end
  local from = seen and prequeue_slot(seen)
  if from and from.n > 0 then from.n = from.n - 1 end
  prequeue_slots[#prequeue_slots].n = prequeue_slots[#prequeue_slots].n + 1
end

-- uncount_prequeued subtracts a ticket that was confirmed at seen; nil: the time is not known.
local function uncount_prequeued(s, p, seen)
  if seen and age(s, seen) > p.absence then return end
  load_prequeue(s)
  local from = seen and prequeue_slot(seen)
  if from and from.n > 0 then
    from.n = from.n - 1
    return
  end
  for _, slot in ipairs(prequeue_slots) do
    if slot.n > 0 then
      slot.n = slot.n - 1
      return
    end
  end
end

-- save_prequeue removes slots whose tickets were silent for absence, and writes the rest and their sum.
local function save_prequeue(s, p)
  load_prequeue(s)
  while prequeue_slots[1] and age(s, prequeue_slots[1].till) > p.absence do table.remove(prequeue_slots, 1) end
  while #prequeue_slots > SLOTS do
    prequeue_slots[2].n = prequeue_slots[2].n + prequeue_slots[1].n
    table.remove(prequeue_slots, 1)
  end
  local text = {}
  s.prequeued = 0
  for i, slot in ipairs(prequeue_slots) do
    s.prequeued = s.prequeued + slot.n
    text[i] = str(slot.till) .. ':' .. slot.n
  end
  -- The sum as well, because a call that only reads does not save the state.
  redis.call('HSET', STATE, 'slots', table.concat(text, ' '), 'prequeued', str(s.prequeued), 'slots_absence', str(p.absence))
end

local function clear_prequeue(s)
  s.prequeued, prequeue_slots = 0, nil
  redis.call('HDEL', STATE, 'slots', 'slots_absence')
  redis.call('HSET', STATE, 'prequeued', 0)
end

-- note_opening notes the opening that the calling gateway is configured with. While gateways differ, as when their files are changed one
-- after the other, the lottery opens at the latest opening that was noted in the last STANDS: a gateway with the old configuration must not
-- open a lottery that is postponed. An opening that the gateway's plan ends by itself stands no longer than until then (opens_for).
local STANDS = 10000000
local function note_opening(s, p)
  s.opens_till = math.min(s.opens_till, s.wall + STANDS)
  if p.opens < s.opens and s.wall < s.opens_till then return end
  local till = s.wall + STANDS
  if p.opens_for > 0 then till = math.min(till, p.opens_for) end
  if p.opens < s.opens and s.prequeued > 0 then s.unheard = s.now + longest_advised(s, p) end
  if p.opens ~= s.opens or till - s.opens_till > 1000000 then -- a call that only reads does not save the state
    redis.call('HSET', STATE, 'opens', str(p.opens), 'opens_till', str(till), 'unheard', str(s.unheard))
  end
  s.opens, s.opens_till = p.opens, till
end

-- LATE is the extra time in which the last of the pre-queue can poll after an opening, before anybody is admitted.
local LATE = 3000000
-- FLAP is how much later than advised a visitor may poll whose gateway has another configuration.
local FLAP = 5000000

-- draw_commitment returns the opening's commitment (32 bytes) and, once it was made, its seed (32). If the secrets of gateways differ,
-- the commitment of the first is published; it stays while a gateway reports it as its own, and for STANDS after that. Once the opening was
-- noted, such a gateway reveals the seed, and the others draw with it too: from then on nobody can choose among draws.
-- report: the opening, ':', the published commitment as the gateway knows it, the gateway's own, and the seed of the published one if the
-- gateway may reveal it.
local function draw_commitment(s, report)
  if s.opens == 0 then return '' end
  local h = redis.call('HMGET', STATE, 'lot_opens', 'lot', 'lot_till', 'lot_seed')
  local commitment, till, seed = h[2] or '', math.min(num(h[3]), s.wall + STANDS), h[4] or ''
  if num(h[1]) ~= s.opens then commitment, till, seed = '', 0, '' end
  local at = string.find(report, ':', 1, true)
  if at and tonumber(string.sub(report, 1, at - 1)) == s.opens then
    local known, own, revealed = string.sub(report, at + 1, at + 32), string.sub(report, at + 33, at + 64), string.sub(report, at + 65)
    local commitment_before, seed_before, till_before = commitment, seed, till
    if commitment == '' then commitment, till = known, s.wall + STANDS end
    if seed == '' and s.wall >= till then commitment = own end
    if commitment == own then till = s.wall + STANDS end
    if seed == '' and commitment == known and s.drawn > 0 then seed = revealed end
    if seed == '' and commitment ~= own and s.drawn > 0 and s.prequeued > 0 then
      s.hold = math.max(s.hold, s.now + LATE) -- nobody is admitted before the pre-queue, whose draw this gateway may not know yet
    end
    if commitment ~= commitment_before or seed ~= seed_before or till - till_before > 1000000 then
      redis.call('HSET', STATE, 'lot_opens', str(s.opens), 'lot', commitment, 'lot_till', str(till), 'lot_seed', seed)
    end
  end
  return commitment == '' and '' or str(s.opens) .. ':' .. commitment .. seed
end

-- end_prequeue ends the pre-queue of a lottery that has been taken out of the policy, and reports whether there was one. Nobody is admitted
-- before all of the pre-queue can have polled, as their orders are earlier than those of newcomers. While the files of gateways differ,
-- visitors of some enter the pre-queue again and again, and each polls within the longest interval: that does not prolong the hold. For a quarter
-- of absence gateways answer a ticket that was in the pre-queue before its last end without the store (PrequeueHold of admission/policy), which
-- therefore does not count it yet.
local function end_prequeue(s, p)
  local again = s.disbanded > 0 and s.now < s.disbanded + longest_advised(s, p) + FLAP
  if s.opens > 0 and s.now > s.disbanded + 1000000 then s.disbanded = s.now end
  local uncounted = not again and s.met > 0 and s.now < s.met + p.absence / 4 + longest_advised(s, p)
  if s.prequeued == 0 and not uncounted or s.drawn > 0 or p.reject then return false end
  local all_polled = s.now + longest_advised(s, p) -- by the intervals that were advised before
  save_prequeue(s, p)
  if (s.prequeued > 0 or uncounted) and (p.live_method or not again) then
    s.unheard = math.max(s.unheard, all_polled)
    s.hold = math.max(s.hold, s.unheard + LATE)
  end
  if s.prequeued > 0 then s.met = s.now end
  clear_prequeue(s)
  return true
end

-- update_lottery sets p.prequeue before the opening of a policy's lottery. The first call after the opening notes it as order time, and
-- returns true. The pre-queue then has some seconds to poll, in which nobody is admitted: an early poll must not beat a better draw.
local function update_lottery(s, p)
  if p.lottery == 0 or p.opens == 0 then return end_prequeue(s, p) end
  local before = s.drawn
  if s.drawn > 0 and p.opens > s.opens then
    s.drawn = 0
    clear_prequeue(s)
  end
  if s.drawn == 0 then
    note_opening(s, p)
    if s.wall >= s.opens then
      s.drawn = s.time
      if s.prequeued > 0 then
        s.hold = math.max(s.hold, s.now + poll_spread(s, p) + LATE, math.min(s.unheard, s.now + longest_advised(s, p)) + LATE)
      end
    end
  end
  p.prequeue = s.drawn == 0
  return s.drawn > before
end
