// Package bulk runs bulk jobs: it takes them from the store's fair queue, passes them to handlers, records their
// outcomes and ends groups. Programs register Go handlers with an Engine (examples/worker is complete);
// cmd/bulkworker registers those of bulk/handler.
//
// Reading order: job.go is the handler's view; engine.go starts and stops the lanes, one for each shard (lane.go), which
// have the loops. Each loop has a file and an interface of the store's methods that it uses: fetch.go (from the fair queue
// to workers) with prefer.go (which shards first), run.go (one run of a job), batch.go (a run of several jobs together),
// ack.go, renew.go, keeper.go, dispatch.go (due jobs and orphans return to their groups), watch.go with reduce.go and
// callback.go (the end of a group), schedules.go, lender.go (limits over all shards), stats.go. ahead.go keeps short jobs that
// were pulled ahead, turn.go lets lanes pull one after the other, each for several pulls where jobs are short (stay.go), pace.go adapts the global rate, chain.go hands ends of groups
// over to other shards. pool.go and scale.go count workers; health.go logs outages; aggregate.go and mapreduce.go aggregate results.
package bulk
