// Command worker is a complete bulk worker of a team's own, to be copied: it adds up invoices. It has its own job type and its
// own reducer, and beside them the HTTP API, the dashboard and the metrics of bulkworker.
//
// A job's payload is an order, and its result what the order comes to:
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
// The environment says where the store is (ANTEROOM_STORE__URL, required, and ANTEROOM_STORE__PREFIX, by default invoices),
// where to listen (ANTEROOM_LISTEN, by default 127.0.0.1:8090; ANTEROOM_ADMIN__TOKEN is required for an address that other
// machines reach) and how many jobs run at once (ANTEROOM_WORKER__COUNT, by default 10). Any number of these processes may run
// on one store: they share the work, and one takes on what another leaves.
//
// Before you copy it: processes with one prefix have to know the same job types, for a job of a type that the process which
// takes it does not know waits for unknown_type_after and is dead then, and to have the same store.Settings, because each tells the store its limits with
// every call. So a worker with types of its own has a prefix of its own.
//
// Where bulkworker is to be the API, for its tokens, callbacks and reloads: run it with worker.count 0 and this worker's prefix
// (ANTEROOM_WORKER__COUNT=0 ANTEROOM_STORE__PREFIX=invoices). It then runs no job itself and takes those of every type.
package main
