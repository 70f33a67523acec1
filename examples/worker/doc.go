// Command worker is a complete bulk worker of a team's own, to be copied: it adds up invoices.
//
// It takes jobs of the type "invoice" from the same store as bulkworker, whose HTTP API, command line and dashboard are where
// groups are submitted, watched and read; jobs are shared out fairly and within the rates whichever process runs them. A job's
// payload is an order,
//
//	{"country":"DE","items":[{"cents":1999,"count":2},{"cents":500,"count":1}]}
//
// and its result {"country":"DE","cents":4498}. A group submitted with
//
//	"aggregate": {"op":"reduce","name":"revenue"}
//
// has, once it has ended, the revenue and the number of invoices of each country as its result.
//
// To try it, with a Redis on port 6379 and bulkworker on the same store:
//
//	export ANTEROOM_STORE__URL=redis://127.0.0.1:6379
//	go run ./examples/worker
//
// The environment says where the store is (ANTEROOM_STORE__URL, required; ANTEROOM_STORE__PREFIX, by default wr) and how many
// jobs run at once (ANTEROOM_WORKER__COUNT, by default 10).
//
// Two things to know before copying it. Every process that runs jobs of one store has to know all their types, for a job of
// an unknown type is dead at once: give bulkworker a prefix of its own, or register what it is configured with here, too.
// And all of them have to have the same store.Settings, because each tells the store its limits with every call; here they
// are the defaults.
package main
