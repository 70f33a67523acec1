// Package store keeps the bulk engine's groups, jobs and results in Redis.
//
// Every change is one script over the keys of one shard, {bulk:<n>}; the fair queue and the limiters in them are those of
// package admission. A refusal is a *Refusal, which says what is wrong and how to go on; any other error means that the
// store did not answer as it should, and then the call may or may not have taken place: every call is safe to repeat.
package store
