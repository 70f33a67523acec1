// Command worker is an example of a custom bulk worker, which adds up invoices. It has its own job type and its own reducer, and
// the HTTP API, the dashboard and the metrics of bulkworker.
//
// A job's payload is an order, and its result the total:
//
//	{"country":"DE","items":[{"cents":1999,"count":2},{"cents":500,"count":1}]}
//	{"country":"DE","cents":4498}
//
// To try it, with a Redis on port 6379:
//
//	export ANTEROOM_STORE__URL=redis://127.0.0.1:6379
//	go run ./examples/worker &
//	for i in $(seq 1000); do echo '{"payload":{"country":"DE","items":[{"cents":1999,"count":2}]}}'; done > orders.ndjson
//	bulkworker submit --type invoice --tenant acme --aggregate '{"op":"reduce","name":"revenue"}' --watch orders.ndjson
//
// The group's result has revenue and number of invoices of each country; http://127.0.0.1:8090/ shows the groups.
//
// The environment sets the store (ANTEROOM_STORE__URL, required, and ANTEROOM_STORE__PREFIX, by default invoices), the listen
// address (ANTEROOM_LISTEN, by default 127.0.0.1:8090; an address that other machines reach requires ANTEROOM_ADMIN__TOKEN) and
// how many jobs run at the same time (ANTEROOM_WORKER__COUNT, by default 10). Any number of these processes may run on one
// store: they share the work, and take over the jobs of a process that has ended.
//
// Before you copy it: processes with the same prefix must have the same job types, since a job of an unknown type becomes a dead letter
// after unknown_type_after, and the same store.Settings, since each process sends its limits with every call. A worker with its own types
// therefore needs its own prefix.
//
// To use bulkworker as the API, for its tokens, callbacks and reloads, run it with worker.count 0 and this worker's prefix
// (ANTEROOM_WORKER__COUNT=0 ANTEROOM_STORE__PREFIX=invoices). It then runs no jobs and accepts jobs of every type.
package main
