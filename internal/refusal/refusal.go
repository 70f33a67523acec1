// Package refusal names the reasons why a Redis that replies refuses writes.
package refusal

import "github.com/redis/go-redis/v9"

// Refusal is the reason why a server that replies refuses writes. The refused call had no effect.
type Refusal struct {
	// Reason is the code of the server's error in lower case; metrics have it as a label.
	Reason string
	// Cause is the state of the server, as a clause that follows "the store refuses writes:".
	Cause string
	// Remedy is what an operator does about it.
	Remedy string

	prefix string
}

// refusals are all of them.
var refusals = [...]Refusal{
	{"misconf", "it cannot save its data to its disk (MISCONF)", "free space on its disk and make its directory writable; the log of Redis has the cause", "MISCONF"},
	{"noreplicas", "too few of its replicas are connected (NOREPLICAS)", "restore the replicas, or lower min-replicas-to-write of Redis", "NOREPLICAS"},
	{"oom", "its memory is full (OOM)", "raise maxmemory of Redis, or remove other data from it", "OOM"},
	{"readonly", "it is a read-only replica (READONLY)", "point store.url at the primary, or wait for the failover to end", "READONLY"},
}

// Of returns the reason of an error of a server that replied and refused to write; ok is false for any other error.
func Of(err error) (refusal Refusal, ok bool) {
	if err == nil {
		return Refusal{}, false
	}
	for _, r := range refusals {
		if redis.HasErrorPrefix(err, r.prefix) {
			return r, true
		}
	}
	return Refusal{}, false
}

// Reasons returns the Reason of every Refusal.
func Reasons() []string {
	var all []string
	for _, r := range refusals {
		all = append(all, r.Reason)
	}
	return all
}
