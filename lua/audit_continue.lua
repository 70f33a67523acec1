#!lua flags=allow-oom
-- audit_continue: records that the end of a room's audit log is not the one that a gateway has seen, as after a loss of data.
-- KEYS: audit
-- ARGV: now, room, seq, hash
-- RETURNS: {code}
-- REPLY CONTINUED: 'C'  the log has a new entry, chain_lost, with the seq and hash that the gateway has seen
-- REPLY KNOWN: 'K'  a gateway has recorded this before
-- INVARIANT: what a gateway has seen of a lost log stays in the next one, once.
-- INCLUDE: clock, audit

local seq, hash = audit_head(KEYS[1])
for _, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, 99)) do
  if entry:find(ARGV[4], 1, true) then return { REPLY_KNOWN } end
end
append_audit(KEYS[1], int(math.floor(clock_now(ARGV[1]) / 1000000)), '', ARGV[2], 'chain_lost', { { 'seq', ARGV[3], int(seq) }, { 'hash', ARGV[4], hash } })
return { REPLY_CONTINUED }
