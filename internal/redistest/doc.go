// Package redistest gives tests a real Redis.
//
// A test binary that uses it has
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// and shares one server (Client) and one cluster of a single node (Cluster) between all its tests, each of which keeps to
// keys under its own Prefix, so that they run in parallel. A test that kills, stops, restarts or empties its store starts
// one of its own with Server. All of them end with the test binary.
package redistest
