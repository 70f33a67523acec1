// Package redistest runs real Redis servers for tests.
//
// A test binary that uses it has
//
//	func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }
//
// and shares one server (Client) and one cluster of a single node (Cluster) between all its tests, each of which keeps to
// keys under its own Prefix, so that they run in parallel. A test that kills, stops, restarts or empties its store starts
// one of its own with Server, or a whole set-up with ThreeMasters or SentinelTrio. All of them end with the test binary.
//
// The first of redis-server and valkey-server in PATH is run; ANTEROOM_TEST_REDIS names another, by its path or by its name
// in PATH, as in
//
//	ANTEROOM_TEST_REDIS=valkey-server go test ./admission ./bulk/store ./lua
package redistest
