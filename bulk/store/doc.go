// Package store keeps the bulk engine's groups, jobs and results in Redis.
//
// Every change is one script over the keys of one shard, {bulk:<n>}, which also hold the fair queue and the
// limiters. A refusal is a *Refusal, with the reason and how to continue. After any other error, the call
// may or may not have taken effect: every call is safe to repeat.
//
// Reading order: keys.go, store.go, submit.go (groups and jobs come in), work.go (Pull, Ack), life.go and groups.go, outcomes.go and
// tally.go (results), keeper.go, audit.go; fleet.go (all shards as one store) and placement.go. Each script is described in its header in lua/.
package store
