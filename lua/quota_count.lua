#!lua flags=allow-oom
-- quota_count: records what a tenant has in the shards that replied, and returns the last record of every shard.
-- KEYS:      counts (a hash)
-- ARGV:      now, keep, shard, ...
-- RETURNS:   for each shard its number and its record
-- INVARIANT: the record of a shard is never below what the tenant has there, because jobs are recorded before they are added
-- INCLUDE:   clock

-- keep: microseconds without a call after which the records are deleted. After each shard follows its record.
for i = 3, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[1], int(tonumber(ARGV[2]) / 1000))
return redis.call('HGETALL', KEYS[1])
