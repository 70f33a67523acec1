package redistest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

var shared struct {
	sync.Mutex
	main    bool // MainNoLeaks runs the tests, and stops the servers that are started here
	server  *process
	cluster *process
}

// Runner runs tests: a *testing.M, or one that starts something around it.
type Runner interface{ Run() int }

// MainNoLeaks runs the tests of a binary, stops the shared stores and exits. It fails the binary if a goroutine is left when all tests
// have passed.
func MainNoLeaks(m Runner, options ...goleak.Option) {
	code := run(m)
	if code == 0 {
		// The pool of a go-redis client that was closed during an outage dials for up to another second.
		err := goleak.Find(options...)
		for deadline := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(deadline); {
			err = goleak.Find(options...) // pauses between its own attempts
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "redistest: goroutines left over:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func run(m Runner) int {
	redis.SetLogger(quiet{}) // tests kill servers on purpose
	shared.Lock()
	shared.main = true
	shared.Unlock()
	defer func() {
		shared.Lock()
		defer shared.Unlock()
		for _, p := range []*process{shared.server, shared.cluster} {
			if p != nil {
				p.remove()
			}
		}
		shared.server, shared.cluster = nil, nil
	}()
	return m.Run()
}

var prefixes atomic.Int64

// Prefix returns a key prefix of lower-case letters and digits that no other test of this binary uses.
func Prefix(t testing.TB) string {
	t.Helper()
	return "t" + strconv.FormatInt(prefixes.Add(1), 10)
}

// Client returns a client of the binary's shared server. It is closed when the test ends.
func Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	return newClient(t, SharedSocket(t))
}

// SharedSocket returns the path of the shared server's unix socket, for tests that hand a store URL to a program.
func SharedSocket(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	needMain(t)
	if shared.server == nil {
		p, err := newProcess("", []string{"--port", "0"})
		if err != nil {
			t.Fatal(err)
		}
		shared.server = p
	}
	return shared.server.socket
}

// Cluster returns a client of the binary's shared cluster: one node that holds every slot, over TCP on loopback. It is
// closed when the test ends.
func Cluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	return clusterClient(t, []string{ClusterAddr(t)})
}

// ClusterAddr returns the shared cluster's host:port, for tests that hand a store URL to a program.
func ClusterAddr(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	needMain(t)
	if shared.cluster == nil {
		p, err := newCluster()
		if err != nil {
			t.Fatal(err)
		}
		shared.cluster = p
	}
	return shared.cluster.addr
}

func needMain(t testing.TB) {
	t.Helper()
	if !shared.main {
		t.Fatal("redistest: this package's tests need: func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }")
	}
}

// quiet drops the messages of the client library about connections.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
