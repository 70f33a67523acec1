package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTestBroker returns a Broker over queues in memory, one for each shard.
func newTestBroker(waiting int, shards ...*memory) (*Broker, *counting) {
	metrics, engine := &bulk.NewMetrics(nil, "").Leases, &counting{}
	b := &Broker{o: Options{Engine: engine, MaxResult: 100, Log: slog.New(slog.DiscardHandler), Metrics: metrics},
		count: func(context.Context) (int, error) { return len(shards), nil }, presence: &presence{workers: map[string]*puller{}}, parking: newParking(waiting, len(shards), metrics)}
	for n, m := range shards {
		b.shards = append(b.shards, &shard{number: n, queue: m, leases: m})
		b.presence.registries = append(b.presence.registries, m)
	}
	return b, engine
}

// running runs a Broker in a bubble while test is called.
func running(t *testing.T, m *memory, test func(t *testing.T, b *Broker, engine *counting)) {
	t.Helper()
	runningOver(t, []*memory{m}, test)
}

func runningOver(t *testing.T, shards []*memory, test func(t *testing.T, b *Broker, engine *counting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for _, m := range shards {
			m.bell = make(chan struct{}, 1) // of this bubble
		}
		b, engine := newTestBroker(1000, shards...)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			_ = b.Run(ctx) // always nil
			close(done)
		}()
		synctest.Wait()
		test(t, b, engine)
		cancel()
		<-done
	})
}

// lease is a request and its response.
type lease struct {
	types       []string
	max         int
	wait        time.Duration
	begin       time.Duration
	leave       time.Duration // when the worker disconnects; 0: never
	from, until time.Time
	got         []string
	left        bool
	err         error
}

func (l *lease) run(ctx context.Context, b *Broker, name string) {
	time.Sleep(l.begin)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if l.leave > 0 {
		defer time.AfterFunc(l.leave, cancel).Stop()
	}
	l.from = time.Now()
	l.err = b.Lease(ctx, Request{Worker: name, Types: l.types, Max: l.max, Wait: l.wait}, func(jobs []Job) error {
		for i := range jobs {
			l.got = append(l.got, jobs[i].Key)
		}
		return nil
	})
	l.left, l.until = ctx.Err() != nil, time.Now()
}

// Requests of several types come and go, jobs are submitted, and events get lost. Every job is leased to one worker; no request waits for
// longer than it asked for; and none waits for more than a second while there is a job for it.
func TestLease_NoneWaitsBesideAJob(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newMemory()
		m.slot = time.Duration(rapid.SampledFrom([]int{0, 0, 0, 3, 40}).Draw(rt, "slot")) * time.Millisecond
		kinds := []string{"a", "b", "c"}
		ms := func(name string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(rt, name)) * time.Millisecond
		}
		var requests []*lease
		for range rapid.IntRange(1, 30).Draw(rt, "requests") {
			l := &lease{types: rapid.SampledFrom([][]string{{"a"}, {"a"}, {"b"}, {"a", "b"}, {"b", "a"}, {"c", "a", "b"}}).Draw(rt, "types"),
				max: rapid.IntRange(1, 7).Draw(rt, "max"), wait: ms("wait", 20_000), begin: ms("begin", 20_000)}
			if rapid.IntRange(0, 4).Draw(rt, "leaves") == 0 {
				l.leave = ms("leave", 10_000)
			}
			requests = append(requests, l)
		}
		type submission struct {
			at    time.Duration
			kind  string
			n     int
			heard bool
		}
		var submissions []submission
		for range rapid.IntRange(0, 12).Draw(rt, "submissions") {
			submissions = append(submissions, submission{ms("at", 25_000), rapid.SampledFrom(kinds).Draw(rt, "kind"), rapid.IntRange(1, 9).Draw(rt, "n"), rapid.IntRange(0, 3).Draw(rt, "heard") > 0})
		}
		var faults []string
		running(t, m, func(t *testing.T, b *Broker, _ *counting) {
			var all sync.WaitGroup
			for i, l := range requests {
				all.Go(func() { l.run(t.Context(), b, fmt.Sprint("w", i)) })
			}
			for _, s := range submissions {
				all.Go(func() {
					time.Sleep(s.at)
					m.submit(s.kind, s.n, s.heard)
				})
			}
			all.Wait()
			faults = judge(m, requests)
			if n := b.Waiting(); n != 0 || len(b.parking.lanes) != 0 {
				faults = append(faults, fmt.Sprintf("%d requests wait after all have ended, in %d lanes", n, len(b.parking.lanes)))
			}
		})
		if len(faults) > 0 {
			rt.Fatal(strings.Join(faults, "\n"))
		}
	})
}

// judge returns what is wrong with the responses.
func judge(m *memory, requests []*lease) (faults []string) {
	const call = 100 * time.Millisecond // 30 requests in turn, a pull each, some repeated
	wrong := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	holder := map[string]int{}
	for i, l := range requests {
		if l.err != nil {
			wrong("request %d: %v", i, l.err)
		}
		if took := l.until.Sub(l.from); took > l.wait+call {
			wrong("request %d took %s and waits for %s", i, took, l.wait)
		}
		if len(l.got) == 0 && !l.left && l.until.Sub(l.from) < l.wait {
			wrong("request %d ended without jobs after %s of %s", i, l.until.Sub(l.from), l.wait)
		}
		for _, key := range l.got {
			if other, twice := holder[key]; twice {
				wrong("job %s is leased to requests %d and %d", key, other, i)
			}
			holder[key] = i
		}
		for key, at := range m.at {
			if !slices.Contains(l.types, typeOf(key)) || slices.Contains(l.got, key) {
				continue
			}
			end, given := m.given[key]
			if !given || end.After(l.until) {
				end = l.until
			}
			if at.Before(l.from) {
				at = l.from
			}
			if beside := end.Sub(at); m.slot == 0 && beside > longestWait+call {
				wrong("request %d waited for %s beside job %s", i, beside, key)
			}
		}
	}
	if len(holder)+len(m.pending) != len(m.at) {
		wrong("%d jobs leased and %d pending of %d", len(holder), len(m.pending), len(m.at))
	}
	return faults
}

// Jobs for many that wait are leased in the order in which these came, as soon as there are some.
func TestLease_FirstComeFirstServed(t *testing.T) {
	t.Parallel()
	m := newMemory()
	running(t, m, func(t *testing.T, b *Broker, engine *counting) {
		var requests []*lease
		var all sync.WaitGroup
		for i := range 5 {
			l := &lease{types: []string{"a"}, max: 2, wait: time.Hour, begin: time.Duration(i) * time.Second}
			requests = append(requests, l)
			all.Go(func() { l.run(t.Context(), b, "w") })
		}
		time.Sleep(10 * time.Second)
		before := time.Now()
		m.submit("a", 9, true)
		all.Wait()
		for i, l := range requests {
			if len(l.got) != min(2, 9-2*i) || l.got[0] != fmt.Sprint("a/", 2*i) {
				t.Errorf("request %d got %v", i, l.got)
			}
			if took := l.until.Sub(before); took > 100*time.Millisecond {
				t.Errorf("request %d got its jobs after %s", i, took)
			}
		}
		if engine.pulled != 9 {
			t.Errorf("%d jobs counted", engine.pulled)
		}
	})
}

// A job that is submitted after a pull has looked, and before its reply, is leased at once.
func TestLease_SeesEventDuringItsPull(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.lag = 20 * time.Millisecond
	running(t, m, func(t *testing.T, b *Broker, _ *counting) {
		other, l := &lease{types: []string{"b"}, max: 1, wait: 3 * time.Second}, &lease{types: []string{"a"}, max: 1, wait: time.Minute}
		var all sync.WaitGroup
		all.Go(func() { other.run(t.Context(), b, "v") }) // so that events are listened for
		time.Sleep(500 * time.Millisecond)
		all.Go(func() { l.run(t.Context(), b, "w") })
		time.Sleep(10 * time.Millisecond)
		m.submit("a", 1, true)
		all.Wait()
		if took := l.until.Sub(l.from); len(l.got) != 1 || took > 100*time.Millisecond {
			t.Errorf("%v after %s", l.got, took)
		}
	})
}

// A pull without a reply may have leased jobs: they are returned when the store is back, not when their leases end.
func TestLease_ReclaimsPullWithoutReply(t *testing.T) {
	t.Parallel()
	m := newMemory()
	away := errors.New("i/o timeout")
	running(t, m, func(t *testing.T, b *Broker, _ *counting) {
		m.submit("a", 3, true)
		m.fails(func(call string) (before, after error) {
			if call == "PullFor" {
				return nil, away
			}
			return away, nil
		})
		l := &lease{types: []string{"a"}, max: 3}
		if l.run(t.Context(), b, "w"); !errors.Is(l.err, away) {
			t.Fatalf("%+v", l)
		}
		time.Sleep(3 * time.Second)
		m.heal()
		l = &lease{types: []string{"a"}, max: 3, wait: 5 * time.Second}
		if l.run(t.Context(), b, "w"); len(l.got) != 3 {
			t.Errorf("%+v", l)
		}
	})
}

// Jobs whose response fails return at once; while the store does not reply, when it is back.
func TestLease_ReturnsUnsentJobs(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	for name, outage := range map[string]bool{"store replies": false, "store away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			running(t, m, func(t *testing.T, b *Broker, engine *counting) {
				m.submit("a", 2, true)
				err := b.Lease(t.Context(), Request{Worker: "w", Types: []string{"a"}, Max: 2}, func([]Job) error {
					if outage {
						m.fails(func(string) (error, error) { return broken, nil })
					}
					return broken
				})
				if !errors.Is(err, broken) {
					t.Fatal(err)
				}
				m.heal()
				if outage {
					time.Sleep(2 * time.Second)
				} else if n := engine.count(store.AckReturned); n != 2 {
					t.Errorf("%d returned", n)
				}
				l := &lease{types: []string{"a"}, max: 2}
				if l.run(t.Context(), b, "v"); len(l.got) != 2 {
					t.Errorf("%+v", l)
				}
			})
		})
	}
}

// An event that came for a request that has left meanwhile is passed on to another process.
func TestBroker_PassesEventOn(t *testing.T) {
	t.Parallel()
	m := newMemory()
	running(t, m, func(t *testing.T, b *Broker, _ *counting) {
		l := &lease{types: []string{"a"}, max: 1, wait: time.Minute, leave: 10 * time.Millisecond}
		l.run(t.Context(), b, "w")
		m.submit("b", 1, true)
		time.Sleep(time.Second)
		m.under(func() {
			if m.rings != 1 || len(m.bell) != 1 {
				t.Errorf("%d rings, and the bell has %d", m.rings, len(m.bell))
			}
		})
	})
}

func TestLease_BoundsWaitingRequests(t *testing.T) {
	t.Parallel()
	m := newMemory()
	running(t, m, func(t *testing.T, b *Broker, _ *counting) {
		b.parking.mu.Lock()
		b.parking.most = 1
		b.parking.mu.Unlock()
		first, second := &lease{types: []string{"a"}, max: 1, wait: time.Minute}, &lease{types: []string{"b"}, max: 1, wait: time.Minute, begin: 500 * time.Millisecond}
		var all sync.WaitGroup
		all.Go(func() { first.run(t.Context(), b, "w") })
		second.run(t.Context(), b, "v")
		if !errors.Is(second.err, ErrBusy) {
			t.Errorf("%+v", second)
		}
		m.submit("b", 1, true)
		third := &lease{types: []string{"b"}, max: 1, wait: time.Minute}
		if third.run(t.Context(), b, "v"); third.err != nil || len(third.got) != 1 {
			t.Errorf("%+v: there is a job, so it need not wait", third)
		}
		all.Wait()
		if first.err != nil || first.until.Sub(first.from) < time.Minute {
			t.Errorf("%+v", first)
		}
	})
}

// Workers are reported while they wait and after each request, with types that stay served; one that is gone is forgotten.
func TestPresence_ReportsWorkers(t *testing.T) {
	t.Parallel()
	m := newMemory()
	running(t, m, func(t *testing.T, b *Broker, _ *counting) {
		l := &lease{types: []string{"a"}, max: 1, wait: 12 * time.Second}
		l.run(t.Context(), b, "waits")
		if err := b.Lease(t.Context(), Request{Worker: "full", Types: []string{"b"}}, func([]Job) error { return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(store.PullersEvery)
		m.under(func() {
			if !m.served["a"] || !m.served["b"] {
				t.Errorf("served %v", m.served)
			}
			var got []string
			for _, list := range m.noted {
				var ids []string
				for _, p := range list {
					ids = append(ids, p.ID)
				}
				slices.Sort(ids)
				got = append(got, strings.Join(ids, "+"))
			}
			if fmt.Sprint(got) != "[waits waits full+waits]" {
				t.Errorf("%v", got)
			}
		})
		time.Sleep(2 * time.Minute)
		b.presence.mu.Lock()
		defer b.presence.mu.Unlock()
		if n := len(b.presence.workers); n != 0 {
			t.Errorf("%d workers are remembered", n)
		}
	})
}

func TestEnd_VerdictsAreThoseOfHandlers(t *testing.T) {
	t.Parallel()
	m := newMemory()
	b, engine := newTestBroker(1, m)
	h := Handle{Key: "g/j", Fence: 7, Type: "a", Attempt: 2, Began: time.Now().Add(-time.Minute)}
	failure := func(k bulk.Kind, after time.Duration) *bulk.Failure {
		return &bulk.Failure{Kind: k, Code: "x", After: after, Err: errors.New("why"), Down: true}
	}
	_, err := b.End(t.Context(), []Verdict{
		{Lease: h, Result: []byte(`{"n":1}`), Took: time.Second},
		{Lease: h, Result: []byte(strings.Repeat("x", 101))},
		{Lease: h, Failure: failure(bulk.KindRetry, time.Hour)},
		{Lease: h, Failure: failure(bulk.KindPermanent, 0)},
		{Lease: h, Failure: failure(bulk.KindBusy, time.Minute)},
		{Lease: h, Failure: failure(bulk.KindBusyGroup, time.Minute)},
		{Lease: h, Returned: true, Took: time.Second},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range m.acks {
		if a.Key != "g/j" || a.Fence != 7 {
			t.Errorf("%+v", a)
		}
		got = append(got, fmt.Sprintf("%s %s%s %s %d %s down=%t ran=%t", a.Verdict, a.Result, a.Code, a.After.Round(time.Second), a.Retries, a.Error, a.Down, a.Took > 0))
		if a.Verdict == store.Retry && a.Breaker != (store.Breaker{Ratio: 0.5}) {
			t.Errorf("%+v", a.Breaker)
		}
	}
	want := []string{`done {"n":1} 0s 0  down=false ran=true`, `done {"dropped":"result_too_large","limit":100} 0s 0  down=false ran=true`,
		"retry x 1h0m0s 5 why down=true ran=true", "failed x 0s 0 why down=true ran=true", "throttled x 1m0s 0 why down=true ran=true",
		"held x 1m0s 0 why down=true ran=true", "returned  0s 0  down=false ran=false"}
	if !slices.Equal(got, want) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if m.acks[0].Took != time.Second || m.acks[1].Took < time.Minute {
		t.Errorf("took %s and %s", m.acks[0].Took, m.acks[1].Took)
	}
	if engine.ended[store.AckDone] != 6 || engine.ended[store.AckReturned] != 1 {
		t.Errorf("%v", engine.ended)
	}
}

func TestHandle_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := Handle{Shard: rapid.IntRange(0, store.MaxShards-1).Draw(t, "shard"), Key: rapid.StringN(1, 60, 200).Draw(t, "key"), Fence: rapid.Int64Range(1, 1<<55).Draw(t, "fence"), Type: rapid.StringN(1, 20, 64).Draw(t, "type"),
			Attempt: rapid.Int64Range(1, 1e6).Draw(t, "attempt"), Began: time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "began"))}
		got, err := ParseHandle(h.String())
		if err != nil || got != h {
			t.Fatalf("%+v became %+v: %v", h, got, err)
		}
	})
}

func FuzzParseHandle(f *testing.F) {
	f.Add(Handle{Key: "1/j1", Fence: 1_800_000_000_000_000, Type: "mail", Attempt: 1, Began: time.UnixMilli(1_800_000_000_000)}.String())
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseHandle(text)
		if err == nil && (h.Key == "" || h.Type == "" || h.Fence < 1 || h.Attempt < 1) {
			t.Errorf("%+v", h)
		}
	})
}
