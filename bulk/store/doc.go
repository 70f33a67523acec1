// Package store keeps the bulk engine's groups, jobs and results in Redis.
//
// Every change is one script over the keys of one shard, {bulk:<n>}, which contain the fair queue and the limiters of
// package admission. A refusal is a *Refusal, with the reason and how to continue. After any other error, the call
// may or may not have taken effect: every call is safe to repeat.
package store
