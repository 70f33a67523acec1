package store

import (
	"strconv"
	"time"
)

// keyNames are the keys of a shard in the order in which every script of the bulk engine takes them (lua/lib/bulk.lua). They
// share one hash tag, so that a shard lives in one slot.
//
//	state     HASH  values of the shard: counters, virtual times, the global limiter
//	names     HASH  group id → its short name
//	groups    HASH  short name → spec (JSON, never changes)
//	flow      HASH  short name → state of the group (packed)
//	index     ZSET  short names by creation
//	tenants   HASH  tenant → state (packed)
//	high normal low  ZSET  tenants (policy fair: by tag) or groups (policy score: by priority) that have jobs to start
//	lines     ZSET  groups of each tenant by tag: <level>/<tenant>/<tag>/<short name>
//	idle      ZSET  last tags of tenants without work
//	gates     ZSET  gated tenants (t/<tenant>) and groups (g/<short name>) by wake time
//	jobs      HASH  <short name>/<id> → record: payload, or outcome
//	runs      HASH  the same → record of its runs; b<fence>, o<fence> → jobs of a shared lease, and which of them still run
//	order     HASH  <short name>:<page> → ids not started yet, in order of submission
//	front     ZSET  jobs given back to the front of their group, by when they were due: +<short name> <µs, and a number> <id>
//	ready     LIST  classic pipeline: jobs that may start
//	leases    ZSET  running jobs with a lease of their own by its end
//	waiting   ZSET  non-ready jobs by the time they are due
//	refused   ZSET  the same by kind, tenant and group, to be counted
//	done      HASH  <short name>:<page> → ids in the order of their outcomes
//	dead      ZSET  dead letters by group
//	chunks    HASH  <short name>:<idempotency key> → answer, or how many jobs are in; <short name>/<number> → idempotency key
//	agenda    ZSET  groups with housekeeping by its time
//	sums      HASH  short name → cursor and state of its reducer, then its result
//	bell      LIST  wakes processes that wait for jobs
//	history   ZSET  <tenant>/<time> snapshots of congestion
//	busy      ZSET  tenants with jobs to do by their last snapshot
//	uniques   HASH  what was submitted under a name that may be used once within a time, with its end: lua/lib/bulkunique.lua
//	lapses    ZSET  the names of uniques by their end
//	links     ZSET  which groups wait for which: lua/lib/bulkchain.lua
//	batches   ZSET  leases that the jobs of one pull share, by their end: lua/lib/bulkleases.lua
//	lists     ZSET  groups by tenant and status, by status, and by label, each by creation: place_in_lists of lua/lib/bulklife.lua
//	aside     ZSET  jobs of types that the process that met them does not run: j<short name> <type> <time> <id>, t<type> <short name>;
//	                and w<type> …: groups that wait for their type, b<name>: breakers that have a record in state
var keyNames = []string{
	"state", "names", "groups", "flow", "index", "tenants", "high", "normal", "low", "lines", "idle", "gates", "jobs", "runs",
	"order", "front", "ready", "leases", "waiting", "refused", "done", "dead", "chunks", "agenda", "sums", "bell", "history", "busy", "aside", "lists",
	"uniques", "lapses", "links",
	"batches",
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
	keyUniques
	keyLapses
	keyLinks
	keyBatches
)

// shardKeys returns the keys of a shard: <prefix>:{bulk:<n>}:<name>.
func shardKeys(prefix string, shard int) []string {
	keys := make([]string, len(keyNames))
	for i, n := range keyNames {
		keys[i] = shardKey(prefix, shard, n)
	}
	return keys
}

// shardKey returns a key of a shard: <prefix>:{bulk:<n>}:<name>.
func shardKey(prefix string, shard int, name string) string {
	return prefix + ":{bulk:" + strconv.Itoa(shard) + "}:" + name
}

// steerKey returns the key of the shared state of rate control.
func steerKey(prefix string, shard int) string { return shardKey(prefix, shard, "steer") }

// layoutKey returns the key of the version of the data layout. That of shard 0 also has the placements (placement.go).
func layoutKey(prefix string, shard int) string { return shardKey(prefix, shard, "layout") }

// keeperKeys returns the keys of the keeper, of when each process last called Keep (µs), and of the processes' status
// (JSON).
func keeperKeys(prefix string, shard int) []string {
	return []string{shardKey(prefix, shard, "keeper"), shardKey(prefix, shard, "processes"), shardKey(prefix, shard, "workers")}
}

// scheduleKeys returns the keys of schedules: their records by id, their ids by the time at which they are due, and <tenant>/<id> of each.
func scheduleKeys(prefix string) []string {
	return []string{prefix + ":{bulk:0}:schedules", prefix + ":{bulk:0}:ticks", prefix + ":{bulk:0}:schedule_owners"}
}

// offerKeys returns the keys of offered groups, <need> <group>: by need, and by the time of the last offer (µs).
func offerKeys(prefix string, shard int) []string {
	return []string{shardKey(prefix, shard, "offers"), shardKey(prefix, shard, "offered")}
}

// lockKey returns the key of a group's lock.
func lockKey(prefix string, shard int, group string) string {
	return shardKey(prefix, shard, "lock:"+group)
}

// quotaKey returns the key of what a tenant with a quota has in each shard: its number → groups and unfinished jobs.
func quotaKey(prefix string, shard int, tenant string) string {
	return shardKey(prefix, shard, "quota:"+tenant)
}

// pullersKey returns the key of the pullers that were reported around a time: id → Puller (JSON).
func pullersKey(prefix string, shard int, at time.Time) string {
	return shardKey(prefix, shard, "pullers:"+strconv.FormatInt(at.UnixMicro()/pullersPart.Microseconds(), 10))
}
