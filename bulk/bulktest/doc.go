// Package bulktest is the bulk engine without a store: Model is the store's state machine in plain Go, the oracle of its
// random tests, and Simulation drives either of the two through a whole run on a virtual clock.
package bulktest
