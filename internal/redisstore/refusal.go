package redisstore

import (
	"github.com/redis/go-redis/v9"
)

// WriteRefusal is the reason why a server that replies refuses writes. The refused call had no effect.
type WriteRefusal struct {
	// Reason is the code of the server's error in lower case; metrics have it as a label.
	Reason string
	// Cause is the state of the server, as a clause that follows "the store refuses writes:".
	Cause string
	// Remedy is what an operator does about it.
	Remedy string

	prefix string
}

// writeRefusals are all reasons.
var writeRefusals = [...]WriteRefusal{
	{"misconf", "it cannot save its data to its disk (MISCONF)", "free space on its disk and make its directory writable; LASTSAVE and the log of Redis have the cause", "MISCONF"},
	{"noreplicas", "too few of its replicas are connected (NOREPLICAS)", "restore the replicas, or lower min-replicas-to-write of Redis", "NOREPLICAS"},
	{"oom", "its memory is full (OOM)", "raise maxmemory of Redis, or remove other data from it", "OOM"},
	{"readonly", "it is a read-only replica (READONLY)", "point store.url at the primary, or let the failover end", "READONLY"},
}

// RefusedWrite returns the reason of an error of a server that replied and refused to write; ok is false for any other error.
func RefusedWrite(err error) (refusal WriteRefusal, ok bool) {
	if err == nil {
		return WriteRefusal{}, false
	}
	for _, r := range writeRefusals {
		if redis.HasErrorPrefix(err, r.prefix) {
			return r, true
		}
	}
	return WriteRefusal{}, false
}

// WriteRefusalReasons returns the Reason of every WriteRefusal.
func WriteRefusalReasons() []string {
	var all []string
	for _, r := range writeRefusals {
		all = append(all, r.Reason)
	}
	return all
}
