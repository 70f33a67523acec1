package bulk

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
	"github.com/anteroom/anteroom/internal/sleep"
)

// TestEngine_JobsSurviveKill: another process runs the jobs of a killed one within lease + 1 s, and no try is spent.
func TestEngine_JobsSurviveKill(t *testing.T) {
	short.Skip(t, "waits for the clock")
	if socket := os.Getenv("BULK_KILLED_SOCKET"); socket != "" {
		runUntilKilled(t, socket, os.Getenv("BULK_KILLED_PREFIX"))
		return
	}
	t.Parallel()
	prefix := redistest.Prefix(t)
	s := openStore(t, redistest.Client(t), prefix, nil)
	group := submit(t, s, store.GroupSpec{Tenant: "a"}, 400, number)

	cmd := exec.Command(os.Args[0], "-test.run", "^TestEngine_JobsSurviveKill$")
	cmd.Env = append(os.Environ(), "BULK_KILLED_SOCKET="+redistest.SharedSocket(t), "BULK_KILLED_PREFIX="+prefix)
	stdin, err := cmd.StdinPipe() // so that it ends with us, whatever happens
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close() }()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for n := 0; n < 10 && lines.Scan(); { // until all its workers hang in mid-run
		if strings.HasPrefix(lines.Text(), "hangs in ") {
			n++
		}
	}
	_ = cmd.Process.Kill()
	killed := time.Now()
	_ = cmd.Wait()

	var last atomic.Int64 // when, after the kill, the last job ran
	g, err := s.Group(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	if g.InFlight < 10 || g.Succeeded == 0 {
		t.Fatalf("the killed engine held %d jobs and had done %d, want at least its 10 workers' and some", g.InFlight, g.Succeeded)
	}
	t.Logf("killed with %d jobs in flight, %d done", g.InFlight, g.Succeeded)
	_, stop := engine(t, s, Options{}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
			last.Store(int64(time.Since(killed)))
			if j.Attempt != 1 {
				t.Errorf("job %s is in attempt %d: a crash spent a try", j.ID, j.Attempt)
			}
			return j.Payload, nil
		}))
	})
	g = ended(t, s, group)
	if g.Succeeded != 400 || g.Status != store.Completed {
		t.Errorf("%+v", g)
	}
	t.Logf("the last of them ran %s after the kill; the lease is %s, a crash waits up to half a second", time.Duration(last.Load()), s.Settings().Lease)
	stop()
	clean(t, s)
}

// runUntilKilled is the process that dies.
func runUntilKilled(t *testing.T, socket, prefix string) {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	s := openStore(t, client, prefix, nil)
	_, stop := engine(t, s, Options{Worker: WorkerOptions{ShutdownGrace: time.Millisecond}}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
			if j.ID >= "j000100" {
				fmt.Println("hangs in", j.ID)
				<-ctx.Done()
			}
			return j.Payload, ctx.Err()
		}))
	})
	defer stop()
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
}

// TestEngine_ShutdownHandsOver: jobs that an engine returns at its shutdown start elsewhere at once, and no try is spent.
func TestEngine_ShutdownHandsOver(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	s := openStore(t, redistest.Client(t), prefix, func(s *store.Settings) { s.Lease = time.Hour })
	group := submit(t, s, store.GroupSpec{Tenant: "a"}, 30, number)
	var running atomic.Int64
	_, stop := engine(t, s, Options{Worker: WorkerOptions{ShutdownGrace: 10 * time.Millisecond, JobTimeout: time.Hour}}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(ctx context.Context, _ *Job) ([]byte, error) {
			running.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}))
	})
	await(t, "not all workers run", func() bool { return running.Load() == 10 })
	stop()
	g, err := s.Group(t.Context(), group)
	if err != nil || g.InFlight != 0 || g.Pending != 30 {
		t.Fatalf("after the shutdown %+v, %v", g, err)
	}
	clean(t, s)
	_, stop = engine(t, s, Options{}, func(e *Engine) {
		e.Register("t", HandlerFunc(func(_ context.Context, j *Job) ([]byte, error) {
			if j.Attempt != 1 {
				t.Errorf("attempt %d", j.Attempt)
			}
			return nil, nil
		}))
	})
	if g := ended(t, s, group); g.Succeeded != 30 {
		t.Errorf("%+v", g)
	}
	stop()
	clean(t, s)
}

// TestEngine_SurvivesStoreFaults halts, kills and restarts the store during a run: the engine continues by itself and logs each outage once.
func TestEngine_SurvivesStoreFaults(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	server := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	s := openStore(t, server.Client(), "p", nil)
	hasty := openWithin(t, 500*time.Millisecond, server.Client(), "p", nil)
	const n = 3000
	group := submit(t, s, store.GroupSpec{Tenant: "a", Aggregate: `{"op":"sum","field":"n"}`}, n, number)
	var runs atomic.Int64
	log := &journal{}
	o := Options{Log: slog.New(slog.NewTextHandler(log, nil)), Worker: WorkerOptions{Count: 20}}
	e, stop := engine(t, hasty, o, func(e *Engine) {
		e.Register("t", HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
			runs.Add(1)
			sleep.For(ctx, 10*time.Millisecond)
			return j.Payload, nil
		}))
	})
	ran := func(k int64) { await(t, "it does not go on", func() bool { return runs.Load() >= k }) }
	// On a busy machine there may be outages that we did not make.
	noticed := func(fault, mend func()) {
		t.Helper()
		away := func() bool { return log.count("cannot reach the store") > log.count("the store is back") }
		fault()
		await(t, "the outage is not noticed", away)
		mend()
		await(t, "the end of the outage is not noticed", func() bool { return !away() })
	}
	ran(300)
	noticed(server.Stop, server.Cont)
	ran(min(runs.Load()+300, n))
	noticed(server.Kill, func() {
		if err := e.Resize(8); err != nil {
			t.Fatal(err)
		}
		server.Restart()
	})
	g := ended(t, s, group)
	want := fmt.Sprintf(`"value":%d,"count":%d,"skipped":0,"succeeded":%d`, n*(n-1)/2, n, n)
	if g.Succeeded != n || !strings.Contains(string(g.Result), want) {
		t.Errorf("%+v %s, want %s", g, g.Result, want)
	}
	t.Logf("%d runs of %d jobs", runs.Load(), n)
	stop()
	clean(t, s)
}
