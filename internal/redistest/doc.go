// Package redistest runs real Redis servers for tests.
//
// A test binary that uses it has
//
//	func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }
//
// All its tests share one server (Client) and one cluster of a single node (Cluster). Each test uses only keys under its own Prefix,
// so tests run in parallel. A test that kills, stops, restarts or empties its store starts a server with Server, or a whole set-up with
// ThreeMasters or SentinelTrio. All servers are stopped with the test binary.
//
// Servers run the first of redis-server and valkey-server in PATH. ANTEROOM_TEST_REDIS names another program, by its path or by its
// name in PATH:
//
//	ANTEROOM_TEST_REDIS=valkey-server go test ./admission ./bulk/store ./lua
package redistest
