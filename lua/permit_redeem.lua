#!lua
-- permit_redeem: marks a permit as redeemed.
-- KEYS: state, permit
-- ARGV: now, epoch (of the permit), seq (the highest known of that epoch), expires (seconds), leeway (seconds), request (name of this request)
-- RETURNS: {code}
-- REPLY REDEEMED: 'R'  the permit is marked now, or was marked by a request with the same name
-- REPLY SPENT: 'S'  another request has marked the permit
-- REPLY OUTDATED: 'O'  the permit has expired, or its mark may have been lost: the store has another epoch, or an older state of this one
-- INVARIANT: all requests that get REDEEMED for a permit have the same name. The mark outlives the permit.
-- INCLUDE: clock, seq

local MARGIN = 60 -- seconds
local now = math.floor(clock_now(ARGV[1]) / 1000000)
local left = tonumber(ARGV[4]) + tonumber(ARGV[5]) - now
local state = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'skips')
local seq = tonumber(ARGV[3])
if left <= 0 or ARGV[2] == '' or state[1] ~= ARGV[2] or tonumber(state[2] or 0) < seq or skipped(state[3] or '', seq) then return { REPLY_OUTDATED } end

local mark = redis.call('GET', KEYS[2])
if not mark then
  redis.call('SET', KEYS[2], ARGV[6], 'EX', int(left + MARGIN))
elseif mark ~= ARGV[6] then
  return { REPLY_SPENT }
end
return { REPLY_REDEEMED }
