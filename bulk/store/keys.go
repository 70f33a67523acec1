package store

import "strconv"

// keyNames are the keys of a shard in the order in which every script of the bulk engine takes them (lua/lib/bulk.lua). They
// share one hash tag, so that a shard lives in one slot.
//
//	state     HASH  figures of the shard: counters, virtual times, the global limiter
//	names     HASH  group id → its short name
//	groups    HASH  short name → spec (JSON, never changes)
//	flow      HASH  short name → how the group stands (packed)
//	index     ZSET  short names by creation
//	tenants   HASH  tenant → how it stands (packed)
//	high normal low  ZSET  tenants (policy fair: by tag) or groups (policy score: by priority) that have jobs to start
//	lines     ZSET  groups of each tenant by tag: <level>/<tenant>/<tag>/<short name>
//	idle      ZSET  last tags of tenants without work
//	gates     ZSET  what is gated (t/<tenant>, g/<short name>) by wake time
//	jobs      HASH  <short name>/<id> → record: payload, or outcome
//	runs      HASH  the same → what its runs have left behind
//	order     HASH  <short name>:<page> → ids not started yet, in order of submission
//	front     ZSET  jobs given back to the front of their group, by when they were due: +<short name> <µs, and a number> <id>
//	ready     LIST  classic pipeline: jobs that may start
//	leases    ZSET  running jobs by the end of their lease
//	waiting   ZSET  non-ready jobs by the time they are due
//	refused   ZSET  the same by kind, tenant and group, to be counted
//	done      HASH  <short name>:<page> → ids in the order of their outcomes
//	dead      ZSET  dead letters by group
//	chunks    HASH  <short name>:<idempotency key> → answer, or how many jobs are in; <short name>/<number> → idempotency key
//	agenda    ZSET  groups with housekeeping by its time
//	sums      HASH  short name → cursor and state of its reducer, then its result
//	bell      LIST  wakes who waits for work
//	history   ZSET  <tenant>/<time> snapshots of congestion
//	busy      ZSET  tenants with jobs to do by their last snapshot
//	lists     ZSET  groups by tenant and status, and by status, each by creation: place_in_lists of lua/lib/bulk.lua
//	aside     ZSET  jobs of types that the process that met them does not run: j<short name> <type> <time> <id>, t<type> <short name>;
//	                and w<type> …: groups that wait for their type, b<name>: breakers that have a record in state
var keyNames = []string{
	"state", "names", "groups", "flow", "index", "tenants", "high", "normal", "low", "lines", "idle", "gates", "jobs", "runs",
	"order", "front", "ready", "leases", "waiting", "refused", "done", "dead", "chunks", "agenda", "sums", "bell", "history", "busy", "aside", "lists",
}

// Indexes into shardKeys of those that Go reads itself.
const (
	keyState = iota
	keyNames_
	keyGroups
	keyFlow
	keyIndex
	keyTenants
	keyHigh
	keyNormal
	keyLow
	keyLines
	keyIdle
	keyGates
	keyJobs
	keyRuns
	keyOrder
	keyFront
	keyReady
	keyLeases
	keyWaiting
	keyRefused
	keyDone
	keyDead
	keyChunks
	keyAgenda
	keySums
	keyBell
	keyHistory
	keyBusy
	keyAside
	keyLists
)

// shardKeys builds the keys of a shard: <prefix>:{bulk:<n>}:<name>.
func shardKeys(prefix string, shard int) []string {
	keys := make([]string, len(keyNames))
	for i, n := range keyNames {
		keys[i] = prefix + ":{bulk:" + strconv.Itoa(shard) + "}:" + n
	}
	return keys
}

// steerKey holds what the processes that search for a shard's rate know of each other.
func steerKey(prefix string, shard int) string {
	return prefix + ":{bulk:" + strconv.Itoa(shard) + "}:steer"
}

// layoutKey holds the version of the data layout of the bulk engine.
func layoutKey(prefix string) string { return prefix + ":{bulk:0}:layout" }

// keeperKeys hold the process that is the keeper, when each process said last that it runs (µs), and what it tells of itself (JSON).
func keeperKeys(prefix string) []string {
	return []string{prefix + ":{bulk:0}:keeper", prefix + ":{bulk:0}:processes", prefix + ":{bulk:0}:workers"}
}

// offerKeys hold what groups need that the process which looked after them lacks, <need> <group>: by need, and by when it was offered
// last (µs).
func offerKeys(prefix string) []string {
	return []string{prefix + ":{bulk:0}:offers", prefix + ":{bulk:0}:offered"}
}

// lockKey is the watcher's lock of a group.
func lockKey(prefix, group string) string { return prefix + ":{bulk:0}:lock:" + group }
