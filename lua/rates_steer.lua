#!lua flags=allow-oom
-- rates_steer: writes one process's report on the downstream, makes one process the leader that finds the global rate, and sets that rate.
-- KEYS: steer, state
-- ARGV: now, process, report ('': none), fence (of the caller's lead; 0: none), rate (thousandths; 0: as it is), control
-- RETURNS: {fence of the leader (0: another process leads), rate that was found (thousandths; 0: none yet), control, 1 if operators set the rate, groups queued, starts so far, now, report, ...}
-- INVARIANT: of two processes that consider themselves the leader, only the one with the newer fence sets the rate.
-- INCLUDE: clock

-- Fields of steer: leader, till, fence, control, and p:<process> with time|report of each process of the last AGE.
-- control is replied to a process that has just become the leader.
local STEER, STATE = KEYS[1], KEYS[2]
local LEASE, AGE = 3000000, 5000000
local now, me, report, fence, rate = clock_now(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
if report ~= '' then redis.call('HSET', STEER, 'p:' .. me, int(now) .. '|' .. report) end

local leader, till, newest, known = unpack(redis.call('HMGET', STEER, 'leader', 'till', 'fence', 'control'))
till, newest = tonumber(till or 0), tonumber(newest or 0)
local leads, control = 0, ''
if leader == me or not leader or till <= now or till > now + LEASE then
  if leader ~= me or fence == 0 or fence ~= newest then
    newest = newest + 1
    control = known or ''
  elseif rate > 0 then
    redis.call('HSET', STATE, 'found_global', int(rate))
    redis.call('HSET', STEER, 'control', ARGV[6])
  end
  leads = newest
  redis.call('HSET', STEER, 'leader', me, 'till', int(now + LEASE), 'fence', int(newest))
end
local found, live, queued, starts = unpack(redis.call('HMGET', STATE, 'found_global', 'live_global', 'queued', 'starts'))
local answer = { int(leads), int(tonumber(found or 0)), control, live and 1 or 0, int(tonumber(queued or 0)),
  int(tonumber(starts or 0)), int(now) }
redis.call('EXPIRE', STEER, 2592000)
local all = redis.call('HGETALL', STEER)
for i = 1, #all, 2 do
  if string.sub(all[i], 1, 2) == 'p:' then
    local at, text = string.match(all[i + 1], '^(%d+)|(.*)$')
    if not at or math.abs(now - tonumber(at)) > AGE then
      redis.call('HDEL', STEER, all[i])
    else
      answer[#answer + 1] = text
    end
  end
end
return answer
