#!lua flags=allow-oom
-- lock_release: deletes a lock if its owner still has it.
-- KEYS:      lock
-- ARGV:      now, owner
-- RETURNS:   1 if the lock was deleted, 0 if it has expired or another process has taken it since
-- INVARIANT: no process deletes the lock of another
if redis.call('GET', KEYS[1]) ~= ARGV[2] then
  return 0
end
return redis.call('DEL', KEYS[1])
