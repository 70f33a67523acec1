package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/short"
)

// starter pulls for processes that take turns, each on its own settings, and keeps when jobs started.
type starter struct {
	clock  *clock
	stores []*Store
	starts []int64
}

func (w *starter) until(t *testing.T, end int64) {
	t.Helper()
	for i := 0; w.clock.us < end; i++ {
		s := w.stores[i%len(w.stores)]
		p := pull(t, s, 50)
		for range p.Jobs {
			w.starts = append(w.starts, w.clock.us)
		}
		ack(t, s, Done, p.Jobs...)
		w.clock.advance(7 * time.Millisecond)
	}
	clean(t, w.stores[0])
}

// fullest returns the most starts in any second.
func (w *starter) fullest() (most int) {
	first := 0
	for i, at := range w.starts {
		for at-w.starts[first] >= 1_000_000 {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// limitedTo sets one of the limits of a start to 50 a second.
var limitedTo = map[string]func(*Settings, *GroupSpec){
	"global": func(set *Settings, _ *GroupSpec) { set.Global = 50 },
	"tenant": func(set *Settings, _ *GroupSpec) { set.PerTenant = 50 },
	"group":  func(_ *Settings, spec *GroupSpec) { spec.Rate = 50 },
	"type":   func(set *Settings, _ *GroupSpec) { set.Types = map[string]TypeLimit{"mail": {Rate: 50}} },
}

// Two processes, one with gcra and one with fixed_window, each read the other's state as their own: five times the rate started.
func TestLimiters_OfTwoProcessesHoldTheRate(t *testing.T) {
	for name, limit := range limitedTo {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := GroupSpec{ID: "g", Tenant: "a", Type: "mail"}
			s, c := open(t, func(set *Settings) { limit(set, &spec) })
			set := s.Settings()
			set.Limiter = "fixed_window"
			other, err := New(Options{Client: s.o.Client, Prefix: s.o.Prefix, Timeout: s.o.Timeout, Settings: set, Now: s.o.Now})
			if err != nil {
				t.Fatal(err)
			}
			create(t, s, spec)
			add(t, s, "g", 0, 2000)
			w := &starter{clock: c, stores: []*Store{s, other}}
			w.until(t, c.us+10_000_000)
			if n := len(w.starts); n < 490 || n > 560 {
				t.Errorf("%d starts in 10 s at 50 a second", n)
			}
			if n := w.fullest(); n > 2*50+5 {
				t.Errorf("%d starts in one second, at 50 a second", n)
			}
		})
	}
}

// A new limiter read the old limiter's state as its own: either more than the rate started, or no job for minutes.
func TestLimiters_ChangeKeepsWhatIsOwed(t *testing.T) {
	short.Skip(t, "makes many cases")
	for _, row := range []struct {
		from, to string
		was      float64 // the rate, times what it is later
	}{
		{"gcra", "fixed_window", 1}, {"fixed_window", "gcra", 1}, {"gcra", "fixed_window", 100}, {"fixed_window", "gcra", 100},
		{"gcra", "fixed_window", 0.02}, {"fixed_window", "gcra", 0.02},
	} {
		for name, limit := range limitedTo {
			t.Run(fmt.Sprint(row.from, " to ", row.to, " ", row.was, " ", name), func(t *testing.T) {
				t.Parallel()
				spec := GroupSpec{ID: "g", Tenant: "a", Type: "mail"}
				s, c := open(t, func(set *Settings) { limit(set, &spec); set.Limiter = row.from })
				after, rate := s.Settings(), spec.Rate
				before := after
				switch {
				case before.PerTenant > 0:
					before.PerTenant *= row.was
				case before.Types != nil:
					before.Types = map[string]TypeLimit{"mail": {Rate: 50 * row.was}}
				case spec.Rate > 0:
					spec.Rate *= row.was
				default:
					before.Global *= row.was
				}
				configure := func(set Settings) {
					if err := s.Configure(set); err != nil {
						t.Fatal(err)
					}
				}
				configure(before)
				create(t, s, spec)
				add(t, s, "g", 0, 9000)
				w := &starter{clock: c, stores: []*Store{s}}
				w.until(t, c.us+1_230_000)
				after.Limiter = row.to
				configure(after)
				if spec.Rate != rate {
					if _, err := s.Patch(t.Context(), "g", Patch{Rate: &rate}); err != nil {
						t.Fatal(err)
					}
				}
				w.starts = nil
				w.until(t, c.us+5_000_000)
				if n := len(w.starts); n < 5*50-60 || n > 6*50+5 {
					t.Errorf("%d starts in 5 s at 50 a second", n)
				}
				if n := w.fullest(); n > 2*50+5 {
					t.Errorf("%d starts in one second, at 50 a second", n)
				}
			})
		}
	}
}
