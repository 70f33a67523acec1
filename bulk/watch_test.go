package bulk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/sleep"
)

func groupBody(g store.Group) ([]byte, error) { return []byte(g.ID + " " + string(g.Status)), nil }

// A group is reduced while it runs and ends with its result; its callback is sent until it is accepted.
func TestWatcher_EndsGroup(t *testing.T) {
	ids := names(1700)
	m := newMemory(ids...)
	m.group.Aggregate, m.group.CallbackURL, m.tend = `{"op":"sum","field":"n"}`, "https://example.com/done", []string{"g"}
	h := HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
		sleep.For(ctx, 20*time.Millisecond)
		return []byte(`{"n":2}`), nil
	})
	var bodies []string
	o := Options{
		CallbackBody: groupBody,
		Callback: func(ctx context.Context, url string, body []byte) error {
			bodies = append(bodies, url+" "+string(body))
			if len(bodies) < 4 {
				return errors.New("503")
			}
			return nil
		},
		Metrics: NewMetrics(nil, ""),
	}
	bubble(t, m, o, map[string]Handler{"t": h}, func(t *testing.T, _ *Engine, log *journal, _ func()) {
		early, begun, rounds := int64(0), 0, 0
		until(t, "no callback is taken", func() bool {
			b, r := m.count("BeginReduce"), m.count("Dispatch")
			m.under(func() {
				if m.group.Status == store.Running {
					early, begun, rounds = m.group.Reduced, b, r
				}
			})
			return m.count("CallbackDone") == 4
		})
		if early == 0 {
			t.Error("nothing is reduced while the group runs")
		}
		if begun > rounds {
			t.Errorf("reduced %d times, though named %d times at most: the last few outcomes of a group that runs can wait", begun, rounds)
		}
		m.under(func() {
			want := `{"op":"sum","field":"n","value":3400,"count":1700,"skipped":0,"succeeded":1700,"failed":0,"dead":0,"cancelled":0,"errors":{}}`
			if m.group.Status != store.Completed || string(m.group.Result) != want || m.group.CallbackState != "done" {
				t.Errorf("%+v", m.group)
			}
			tries := []string{"ok=false last=false again=2s", "ok=false last=false again=4s", "ok=false last=false again=8s", "ok=true last=false again=16s"}
			if !slices.Equal(m.callbacks, tries) {
				t.Errorf("callbacks %q, want %q", m.callbacks, tries)
			}
			if bodies[3] != "https://example.com/done g COMPLETED" {
				t.Errorf("called with %q", bodies[3])
			}
		})
		same(t, o.Metrics, map[string]float64{"reduced_total": 1700, `groups_ended_total{status="completed"}`: 1,
			`callbacks_total{verdict="retry"}`: 3, `callbacks_total{verdict="done"}`: 1})
	})
}

func TestCallback_IsAbandonedAfterDay(t *testing.T) {
	for _, row := range []struct {
		over  time.Duration // since the group's end
		tries int64
		want  string
	}{
		{0, 0, "ok=false last=false again=2s"},
		{time.Hour, 10, "ok=false last=false again=34m8s"},
		{22 * time.Hour, 32, "ok=false last=false again=1h0m0s"},
		{23*time.Hour + time.Minute, 33, "ok=false last=true again=1h0m0s"},
		{48 * time.Hour, 1000, "ok=false last=true again=1h0m0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			m.group.Status, m.group.CallbackState, m.group.CallbackTries = store.Completed, "pending", row.tries
			m.group.FinishedAt = time.Now().Add(-row.over)
			c := &calling{store: m, body: groupBody, metrics: NewMetrics(nil, ""), log: discard(), slots: make(chan struct{}, 1),
				send: func(ctx context.Context, _ string, _ []byte) error { return errors.New("no route") }}
			if err := c.back(t.Context(), m, "g"); err != nil {
				t.Fatal(err)
			}
			if len(m.callbacks) != 1 || m.callbacks[0] != row.want {
				t.Errorf("%s after the end, try %d: %q, want %q", row.over, row.tries, m.callbacks, row.want)
			}
		})
	}
}

// A callback's URL may contain a secret, and the log has readable times.
func TestCallback_LogHidesSecrets(t *testing.T) {
	m := newMemory()
	m.group.Status, m.group.CallbackURL, m.group.FinishedAt = store.Completed, "https://example.com/hook?token=s3cret", time.Now()
	m.group.CallbackState = "pending"
	log := &journal{}
	c := &calling{store: m, body: groupBody, metrics: NewMetrics(nil, ""), log: slog.New(slog.NewJSONHandler(log, nil)), slots: make(chan struct{}, 1),
		send: func(context.Context, string, []byte) error { return errors.New("no route") }}
	if err := c.back(t.Context(), m, "g"); err != nil {
		t.Fatal(err)
	}
	if log.count(`"again":"2s"`) != 1 || log.count("s3cret") != 0 {
		t.Errorf("%s", log.b.String())
	}
}

// A process without callbacks, or without the reducer, leaves the group to other processes and does not log this again and again.
func TestWatcher_OffersGroupToOthers(t *testing.T) {
	m := newMemory("j")
	m.group.Aggregate, m.group.CallbackURL, m.tend = `{"op":"reduce","name":"who"}`, "https://example.com", []string{"g"}
	bubble(t, m, Options{}, map[string]Handler{"t": noop}, func(t *testing.T, _ *Engine, log *journal, _ func()) {
		<-time.After(5 * time.Minute)
		if m.status() != store.Aggregating {
			t.Errorf("status %s", m.status())
		}
		if n := log.count("waits for a reducer"); n < 1 || n > 6 {
			t.Errorf("logged %d times in 5 minutes", n)
		}
		m.under(func() { m.group.Aggregate = `{"op":"count"}` })
		until(t, "the group does not end", func() bool { return m.status() == store.Completed })
		<-time.After(time.Minute)
		m.under(func() {
			if m.group.CallbackState != "pending" || len(m.callbacks) != 0 {
				t.Errorf("callback %s, %v", m.group.CallbackState, m.callbacks)
			}
		})
	})
}

func TestReducer_IsRetriedAfterPanic(t *testing.T) {
	m := newMemory("a", "b")
	m.group.Aggregate, m.tend = `{"op":"reduce","name":"n"}`, []string{"g"}
	var tries atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		m.event = make(chan struct{}, 1)
		e, err := newEngine(Options{}, m.stores(), store.Defaults())
		if err != nil {
			t.Fatal(err)
		}
		e.Register("t", noop)
		e.RegisterReducer("n", MapReduce(func(o *Outcome) (int, bool, error) {
			if tries.Add(1) < 4 {
				panic("oh")
			}
			return 1, true, nil
		}, func(a, b int) int { return a + b }))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		until(t, "the group does not end", func() bool { return m.status() == store.Completed })
		m.under(func() {
			if !strings.Contains(string(m.group.Result), `"value":2,"succeeded":2`) {
				t.Errorf("%s", m.group.Result)
			}
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestReducer_FinishesCancelledGroup(t *testing.T) {
	m := newMemory("a", "b", "c")
	m.tend = []string{"g"}
	h := HandlerFunc(func(ctx context.Context, j *Job) ([]byte, error) {
		if j.ID == "c" {
			m.under(func() { m.group.Status = store.Cancelled })
		}
		return nil, nil
	})
	m.group.Total = 4 // never all
	bubble(t, m, Options{Worker: WorkerOptions{Count: 1}}, map[string]Handler{"t": h}, func(t *testing.T, _ *Engine, _ *journal, _ func()) {
		until(t, "no result", func() bool {
			var got string
			m.under(func() { got = string(m.group.Result) })
			return strings.Contains(got, `"succeeded":3`)
		})
		if m.status() != store.Cancelled {
			t.Errorf("status %s", m.status())
		}
	})
}

// Two processes reduce one group: each outcome is reduced once, whichever process commits and whichever replies are lost.
func TestReducers_TakeEachOutcomeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.group.Aggregate = `{"op":"sum","field":"n"}`
		for i := range 3000 {
			m.outcomes = append(m.outcomes, store.Outcome{ID: fmt.Sprint(i), Status: "succeeded", Result: []byte(`{"n":1}`)})
		}
		m.group.Total, m.group.Succeeded, m.group.Status = 3000, 3000, store.Aggregating
		n := 0
		m.fault = func(call string) (error, error) {
			if n++; n%7 == 0 {
				return nil, errAway
			}
			return nil, nil
		}
		metrics := NewMetrics(nil, "")
		done := make(chan struct{})
		for range 2 {
			go func() {
				defer func() { done <- struct{}{} }()
				r := &reducing{store: m, metrics: metrics}
				for m.status() == store.Aggregating {
					_, _ = r.group(t.Context(), "g", time.Now().Add(time.Minute)) // lost answers are the point
				}
			}()
		}
		<-done
		<-done
		if want := `"value":3000,"count":3000`; !strings.Contains(string(m.group.Result), want) {
			t.Errorf("%s, want %s", m.group.Result, want)
		}
	})
}

// One reduction of a running group reads the outcomes that existed at its start, one step a page. It does not follow the group a few
// outcomes at a time.
func TestReducing_DoesNotChaseAGroupThatRuns(t *testing.T) {
	m := newMemory()
	ended := func(n int) {
		for range n {
			m.outcomes = append(m.outcomes, store.Outcome{ID: strconv.Itoa(len(m.outcomes)), Status: "succeeded"})
		}
		m.group.Succeeded = int64(len(m.outcomes))
	}
	m.group.Status, m.group.Total = store.Running, 10_000
	ended(2*reducePage + 1)
	m.fault = func(call string) (error, error) {
		if call == "Results" && len(m.outcomes) < 9_000 { // jobs end meanwhile
			ended(10)
		}
		return nil, nil
	}
	r := &reducing{store: m, metrics: NewMetrics(nil, "")}
	if more, err := r.group(t.Context(), "g", time.Now().Add(time.Minute)); more || err != nil {
		t.Fatal(more, err)
	}
	if n := m.calls["CommitReduce"]; n != 3 || m.group.Reduced < 2*reducePage+1 {
		t.Errorf("%d steps for %d outcomes, want 3 for those that there were", n, m.group.Reduced)
	}
}

// A callback that hangs does not delay the housekeeping of other groups.
func TestCallback_DoesNotDelayOtherGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := &manyGroups{tended: map[string]int{}}
		log := &calling{send: func(ctx context.Context, _ string, _ []byte) error { <-ctx.Done(); return ctx.Err() },
			body: groupBody, store: many, metrics: NewMetrics(nil, ""), log: discard(), slots: make(chan struct{}, callbackAtOnce)}
		w := newWatcher(many, nil, log, log.metrics, discard(), newHealth(discard(), func(bool) {}))
		l := begin(t.Context(), w.run)
		defer l.stop()
		for i := range 40 {
			w.named <- []string{fmt.Sprint("slow", i)}
		}
		w.named <- []string{"quick"}
		synctest.Wait()
		at := time.Now()
		until(t, "the quick one waits", func() bool { return many.count("quick") > 0 })
		if d := time.Since(at); d > time.Second {
			t.Errorf("the quick one waits %s", d)
		}
		before := many.count("slow3")
		w.named <- []string{"slow3"} // while somebody is busy with it
		until(t, "a group that is busy is not moved on in the agenda", func() bool { return many.count("slow3") > before })
	})
}

// sweeps has so many steps of 10 ms to do in each group.
type sweeps struct {
	manyGroups
	steps int
}

func (s *sweeps) Tend(ctx context.Context, group string) (store.Tended, error) {
	sleep.For(ctx, 10*time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tended[group]++
	return store.Tended{Again: s.tended[group] < s.steps}, nil
}

// Sweeping many groups at once uses at most a quarter of the store's time.
func TestWatcher_PausesBetweenSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sweeps{manyGroups{tended: map[string]int{}}, 100}
		w := newWatcher(s, nil, nil, NewMetrics(nil, ""), discard(), newHealth(discard(), func(bool) {}))
		l := begin(t.Context(), w.run)
		defer l.stop()
		groups := []string{"a", "b", "c", "d"}
		began := time.Now()
		w.named <- groups
		until(t, "a sweep does not end", func() bool {
			n := 0
			for _, g := range groups {
				n += s.count(g)
			}
			return n == 4*s.steps
		})
		if took, work := time.Since(began), 4*99*10*time.Millisecond; took < 3*work {
			t.Errorf("%s of steps took %s", work, took)
		}
	})
}
