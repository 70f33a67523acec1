package outbox_test

import (
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission"
	. "github.com/anteroom/anteroom/admission/outbox"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/lua"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

func open(t *testing.T, now func() int64) *Queue {
	t.Helper()
	core, err := admission.New(admission.Options{Client: redistest.Server(t).Client(), Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Run: admission.ScriptsOf(core), Prefix: "wr", Now: now})
}

// The reply codes in Go are those of the header of webhooks_take.
func TestReplies_MatchScript(t *testing.T) {
	if got, want := lua.MustLoad().Script("webhooks_take").Replies, (map[string]string{"HOLDER": "H", "OTHER": "O"}); !maps.Equal(got, want) {
		t.Errorf("lua/webhooks_take has %v, Go has %v", got, want)
	}
}

// Only one gateway sends at a time; another takes over when its lease has ended.
func TestTake_OneGatewayHoldsLease(t *testing.T) {
	now := int64(1e12)
	q := open(t, func() int64 { return now })
	take := func(name string) bool {
		t.Helper()
		w, err := q.Take(t.Context(), name, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		return w.Holder
	}
	if !take("a") || take("b") || !take("a") {
		t.Error("a does not hold the lease alone")
	}
	now += 4_999_999
	if take("b") {
		t.Error("b took over too early")
	}
	now++
	if !take("b") || take("a") {
		t.Error("b did not take over")
	}
	if r, err := q.Read(t.Context(), 1); err != nil || r.Holder != "b" {
		t.Errorf("%+v %v", r, err)
	}
}

// A queue that is full drops what comes later, for that endpoint alone, and counts it.
func TestNote_DropsBeyondBound(t *testing.T) {
	q := open(t, func() int64 { return 1e12 })
	var changes []Change
	for i := range MostPending + 3 {
		changes = append(changes, Change{ID: fmt.Sprint("m", i), Body: "{}", Endpoints: []string{"full"}})
	}
	changes = append(changes, Change{ID: "m", Body: "{}", Endpoints: []string{"full", "other"}})
	if _, err := q.Note(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	r, err := q.Read(t.Context(), 1)
	if err != nil || r.Counts["full"] != (Count{Pending: MostPending, Dropped: 4}) || r.Counts["other"] != (Count{Pending: 1}) {
		t.Errorf("%+v %v", r, err)
	}
}

// model is what a queue should hold.
type model struct {
	states  map[string]string
	pending map[string]int64 // endpoint and id → due
	counts  map[string]Count
}

// Whatever gateways do in whatever order: a change of a state queues its event once for each endpoint, an event stays until it is delivered or
// dead, an event that was taken comes back, and the counts are right.
func TestQueue_KeepsEveryEvent(t *testing.T) {
	now := int64(1e12)
	q := open(t, func() int64 { return now })
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		endpoints := []string{fmt.Sprintf("a%d", round), fmt.Sprintf("b%d", round)}
		m := model{states: map[string]string{}, pending: map[string]int64{}, counts: map[string]Count{}}
		now += 60e6 // earlier rounds' leases have ended
		count := func(endpoint string, f func(*Count)) {
			c := m.counts[endpoint]
			f(&c)
			m.counts[endpoint] = c
		}
		for step := range rapid.IntRange(5, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 2).Draw(rt, "what") {
			case 0:
				field := fmt.Sprint(rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "field"), round)
				c := Change{Field: field, Initial: "0", Value: rapid.SampledFrom([]string{"0", "1", "2", ""}).Draw(rt, "value"),
					Expected: rapid.SampledFrom([]string{"", "0", "1"}).Draw(rt, "expected"), ID: fmt.Sprintf("m%d-%d", round, step), Body: "{}",
					Endpoints: endpoints[:rapid.IntRange(0, 2).Draw(rt, "endpoints")]}
				current, there := m.states[field]
				if !there {
					current = "0"
				}
				want := (c.Expected == "" || c.Expected == current) && current != c.Value
				got, err := q.Note(t.Context(), []Change{c})
				if err != nil || got[0] != want {
					rt.Fatalf("%+v over %q: %v, %v", c, current, got, err)
				}
				if want {
					if m.states[field] = c.Value; c.Value == "" {
						delete(m.states, field)
					}
					for _, e := range c.Endpoints {
						m.pending[e+" "+c.ID] = now
						count(e, func(c *Count) { c.Pending++ })
					}
				}
			case 1:
				now += rapid.Int64Range(0, 40e6).Draw(rt, "pass")
			case 2:
				work, err := q.Take(t.Context(), "g", 100, nil)
				if err != nil || !work.Holder {
					rt.Fatal(work.Holder, err)
				}
				due := 0
				for member, at := range m.pending {
					if at <= now {
						due++
						m.pending[member] = now + 30e6
					}
				}
				if len(work.Events) != due {
					rt.Fatalf("%d events, want %d", len(work.Events), due)
				}
				for _, e := range work.Events {
					member := e.Endpoint + " " + e.ID
					switch v := rapid.SampledFrom([]Verdict{Done, Retry, Later, Dead, "died"}).Draw(rt, "verdict"); v {
					case "died":
					default:
						if err := q.Settle(t.Context(), Outcome{Endpoint: e.Endpoint, ID: e.ID, Verdict: v, Delay: 5 * time.Second, Error: "why"}); err != nil {
							rt.Fatal(err)
						}
						switch v {
						case Retry, Later:
							m.pending[member] = now + 5e6
						case Done:
							delete(m.pending, member)
							count(e.Endpoint, func(c *Count) { c.Pending--; c.Delivered++ })
						case Dead:
							delete(m.pending, member)
							count(e.Endpoint, func(c *Count) { c.Pending--; c.Dead++ })
						}
					}
				}
			}
			r, err := q.Read(t.Context(), 1)
			if err != nil {
				rt.Fatal(err)
			}
			for _, e := range endpoints {
				if r.Counts[e] != m.counts[e] {
					rt.Fatalf("%s: %+v, want %+v", e, r.Counts[e], m.counts[e])
				}
			}
		}
		// What is left is delivered in the end.
		now += 60e6
		work, err := q.Take(t.Context(), "g", 1000, nil)
		if err != nil || len(work.Events) != len(m.pending) {
			rt.Fatalf("%d left, want %d, %v", len(work.Events), len(m.pending), err)
		}
		for _, e := range work.Events {
			if err := q.Settle(t.Context(), Outcome{Endpoint: e.Endpoint, ID: e.ID, Verdict: Done}); err != nil {
				rt.Fatal(err)
			}
		}
	})
}
