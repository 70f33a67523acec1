// Package bulk runs bulk jobs: it takes them from the store's fair queue, hands them to handlers, acknowledges what became
// of them, and brings groups to their end. A team's own worker registers Go handlers with an Engine (examples/worker is a
// complete one); cmd/bulkworker is the one that ships, with the handlers of bulk/handler.
//
// Reading order: job.go is what a handler sees; engine.go starts the loops and ends them in order. Each loop has its file, and
// an interface of the few methods of the store that it uses: fetch.go (the fair queue to workers), run.go (a job's run), ack.go,
// renew.go, dispatch.go (due jobs and orphans back to their groups), watch.go with reduce.go and callback.go (a group's end),
// stats.go. pool.go and scale.go count workers; health.go tells an outage once; aggregate.go and mapreduce.go reduce results.
package bulk
