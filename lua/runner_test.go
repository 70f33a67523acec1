package lua

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/redisurl"
)

func script(name, head, body string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("#!lua\n-- " + name + ": a fixture.\n" + head + "\n-- RETURNS: something\n-- INVARIANT: none\n" + body + "\n")}
}

// fixtures returns scripts that reply, and one that fails.
func fixtures(t *testing.T) *Set {
	t.Helper()
	set, err := LoadFS(fstest.MapFS{
		"test_echo.lua":  script("test_echo", "-- KEYS: k\n-- ARGV: now, a, ...", "return {KEYS[1], unpack(ARGV)}"),
		"test_count.lua": script("test_count", "-- KEYS: k\n-- ARGV: now", "return redis.call('INCR', KEYS[1])"),
		"test_none.lua":  script("test_none", "-- KEYS: k\n-- ARGV: now", "return false"),
		"test_fail.lua":  script("test_fail", "-- KEYS: k\n-- ARGV: now\n-- INCLUDE: trap", "return trap()"),
		"test_two.lua":   script("test_two", "-- KEYS: a, b\n-- ARGV: now", "return redis.call('MGET', KEYS[1], KEYS[2])"),
		"lib/trap.lua":   {Data: []byte("local function trap()\n  return nil + 1\nend\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// stores runs a test on the shared server and on the shared cluster.
func stores(t *testing.T, f func(t *testing.T, client redis.UniversalClient)) {
	t.Run("server", func(t *testing.T) { f(t, redistest.Client(t)) })
	t.Run("cluster", func(t *testing.T) { f(t, redistest.Cluster(t)) })
}

func TestRun(t *testing.T) {
	set := fixtures(t)
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		r := NewRunner(client, set, nil)
		if err := r.LoadAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		key := redistest.Prefix(t) + ":{room:a}:k"
		got, err := r.Run(t.Context(), set.Script("test_echo"), []string{key}, 0, "a", []byte("b\x00"), int64(1<<60))
		want := []any{key, "0", "a", "b\x00", "1152921504606846976"}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
		if got, err := r.Run(t.Context(), set.Script("test_none"), []string{key}, 0); got != nil || err != nil {
			t.Fatalf("Lua's false is %v, %v", got, err)
		}
	})
}

func TestRun_LoadsMissingScripts(t *testing.T) {
	set := fixtures(t)
	own := redistest.Server(t)
	client := own.Client()
	r := NewRunner(client, set, nil)
	for want := int64(1); want <= 3; want++ {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Run(t.Context(), set.Script("test_count"), []string{"n"}, 0); err != nil || got != want {
			t.Fatalf("got %v, %v, want %d", got, err, want)
		}
	}
	if exists, err := client.ScriptExists(t.Context(), set.Script("test_count").SHA).Result(); err != nil || !exists[0] {
		t.Fatalf("not loaded again: %v, %v", exists, err)
	}
}

func TestRun_AfterRestart(t *testing.T) {
	set := fixtures(t)
	own := redistest.Server(t)
	r := NewRunner(own.Client(), set, nil)
	if err := r.LoadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	own.Kill()
	if _, err := r.Run(t.Context(), set.Script("test_count"), []string{"n"}, 0); err == nil {
		t.Fatal("a killed store replies")
	}
	own.Restart()
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		got, err := r.Run(deadline, set.Script("test_count"), []string{"n"}, 0)
		if err == nil && got == int64(1) {
			return
		}
		if deadline.Err() != nil {
			t.Fatalf("got %v, %v", got, err)
		}
	}
}

// TestRun_WhileKeysMove: a call waits while a slot moves, and then runs once.
func TestRun_WhileKeysMove(t *testing.T) {
	t.Parallel()
	cluster := redistest.ThreeMasters(t, 0, "--cluster-node-timeout", "15000")
	set := fixtures(t)
	client, err := redisurl.Open(cluster.URL(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	r := NewRunner(client, set, nil)
	keys := []string{"{a}1", "{a}2"}
	for _, k := range keys {
		if err := client.Set(t.Context(), k, k, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	to := cluster.Nodes[0]
	if cluster.Master("{a}") == to {
		to = cluster.Nodes[1]
	}
	move := cluster.Move("{a}", to)
	move.Step(1)
	for limit := 50 * time.Millisecond; ; limit *= 4 { // in which a busy store has to answer at all
		short, cancel := context.WithTimeout(t.Context(), limit)
		got, err := r.Run(short, set.Script("test_two"), keys, 0)
		cancel()
		if redis.HasErrorPrefix(err, "TRYAGAIN") {
			break
		}
		if err == nil || limit > 10*time.Second {
			t.Fatalf("with half of its keys: %v, %v", got, err)
		}
	}
	type answer struct {
		got any
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := r.Run(ctx, set.Script("test_two"), keys, 0)
		answered <- answer{got, err}
	}()
	move.Finish()
	if a := <-answered; a.err != nil || !reflect.DeepEqual(a.got, []any{"{a}1", "{a}2"}) {
		t.Fatalf("after the move: %v, %v", a.got, a.err)
	}
}

func TestRun_RefusesWrongCalls(t *testing.T) {
	set := fixtures(t)
	observed := 0
	r := NewRunner(redistest.Client(t), set, func(string, time.Duration, error) { observed++ })
	for _, row := range []struct {
		name   string
		script string
		keys   []string
		args   []any
		want   string
	}{
		{"a key less", "test_two", []string{"a"}, []any{0}, "takes 2 keys [a b], got 1"},
		{"a key more", "test_count", []string{"a", "b"}, []any{0}, "takes 1 keys [k], got 2"},
		{"no now", "test_count", []string{"a"}, nil, "takes the arguments [now]"},
		{"an argument more", "test_count", []string{"a"}, []any{0, 1}, "takes the arguments [now]"},
		{"a float", "test_echo", []string{"a"}, []any{0, 1.5}, "argument 2 is a float64"},
		{"nil", "test_echo", []string{"a"}, []any{nil}, "argument 1 is a <nil>"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := r.Run(t.Context(), set.Script(row.script), row.keys, row.args...)
			if !errors.Is(err, ErrCall) || !strings.Contains(err.Error(), row.want) {
				t.Fatalf("got %v, want %q", err, row.want)
			}
		})
	}
	if observed != 0 {
		t.Fatalf("%d calls were counted as the store's", observed)
	}
}

func TestRun_ErrorsNameFileAndLine(t *testing.T) {
	set := fixtures(t)
	r := NewRunner(redistest.Client(t), set, nil)
	_, err := r.Run(t.Context(), set.Script("test_fail"), []string{"k"}, 0)
	if err == nil || !strings.HasPrefix(err.Error(), "lua/lib/trap.lua:2: run script test_fail: ") {
		t.Fatalf("got %v", err)
	}

	broken, err := LoadFS(fstest.MapFS{"test_bad.lua": script("test_bad", "-- KEYS: k\n-- ARGV: now", "return )")})
	if err != nil {
		t.Fatal(err)
	}
	err = NewRunner(redistest.Client(t), broken, nil).LoadAll(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "lua/test_bad.lua:7: load script test_bad: ") {
		t.Fatalf("got %v", err)
	}
}

func TestRun_Observes(t *testing.T) {
	set := fixtures(t)
	type call struct {
		script string
		failed bool
	}
	var calls []call
	r := NewRunner(redistest.Client(t), set, func(script string, d time.Duration, err error) {
		if d < 0 {
			t.Errorf("took %s", d)
		}
		calls = append(calls, call{script, err != nil})
	})
	key := []string{redistest.Prefix(t)}
	_, _ = r.Run(t.Context(), set.Script("test_count"), key, 0)
	_, _ = r.Run(t.Context(), set.Script("test_fail"), key, 0)
	_, _ = r.Run(t.Context(), set.Script("test_none"), key, 0)
	want := []call{{"test_count", false}, {"test_fail", true}, {"test_none", false}}
	if !reflect.DeepEqual(calls, want) {
		t.Fatalf("observed %v, want %v", calls, want)
	}
}

// cutter is a connection that forwards requests and, once armed, loses the next reply: the script runs, and the caller gets an error.
type cutter struct {
	net.Conn
	armed *atomic.Bool
}

func (c cutter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.armed.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// TestRun_RepeatsNoCallThatMayHaveRun: go-redis by default repeats commands after a lost reply, its cluster client even with
// MaxRetries -1.
func TestRun_RepeatsNoCallThatMayHaveRun(t *testing.T) {
	set := fixtures(t)
	var armed atomic.Bool
	dial := func(network, addr string) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, n, a string) (net.Conn, error) {
			if network != "" {
				n, a = network, addr
			}
			conn, err := new(net.Dialer).DialContext(ctx, n, a)
			return cutter{conn, &armed}, err
		}
	}
	for name, client := range map[string]redis.UniversalClient{
		"server":  redis.NewClient(&redis.Options{Dialer: dial("unix", redistest.SharedSocket(t))}), // with go-redis's three retries
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{redistest.ClusterAddr(t)}, Dialer: dial("", "")}),
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { _ = client.Close() }()
			r := NewRunner(client, set, nil)
			key := []string{redistest.Prefix(t)}
			if got, err := r.Run(t.Context(), set.Script("test_count"), key, 0); err != nil || got != int64(1) {
				t.Fatalf("got %v, %v", got, err)
			}
			armed.Store(true)
			_, err := r.Run(t.Context(), set.Script("test_count"), key, 0)
			if err == nil || armed.Load() {
				t.Fatalf("the reply was to be lost and the call to fail, got %v", err)
			}
			if got, err := r.Run(t.Context(), set.Script("test_count"), key, 0); err != nil || got != int64(3) {
				t.Fatalf("the script ran %v times before this one (%v), want 2", got, err)
			}
		})
	}
}

// TestRun_NeedsNoCommandTable: a minimal ACL forbids COMMAND, which go-redis's cluster client would use to find the keys.
func TestRun_NeedsNoCommandTable(t *testing.T) {
	set := fixtures(t)
	p := redistest.Prefix(t)
	admin := redistest.Cluster(t)
	if err := admin.Do(t.Context(), "ACL", "SETUSER", p, "on", ">secret", "~"+p+":*", "-@all", "+evalsha", "+eval", "+script|load", "+incr", "+cluster|slots", "+ping").Err(); err != nil {
		t.Fatal(err)
	}
	client, err := redisurl.Open("redis-cluster://"+p+":secret@"+redistest.ClusterAddr(t), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	r := NewRunner(client, set, nil)
	if err := r.LoadAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"{a}", "{b}", "{room:sale}"} {
		if got, err := r.Run(t.Context(), set.Script("test_count"), []string{p + ":" + tag}, 0); err != nil || got != int64(1) {
			t.Fatalf("%s: %v, %v", tag, got, err)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	set := MustLoad()
	client := redistest.Client(b)
	r := NewRunner(client, set, nil)
	key := []string{redistest.Prefix(b)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Run(b.Context(), set.Script("layout_claim"), key, 0, 1); err != nil {
			b.Fatal(err)
		}
	}
}
