package store_test

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// TestStore_KeepsPaceInRealTime runs the default and the classic pipeline on Redis's own clock, scaled down: 3 tenants, 200 jobs a second each.
func TestStore_KeepsPaceInRealTime(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	for _, c := range Scenarios(1) {
		if c.Name != "exact" && c.Name != "default" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Settings.Global, c.Jobs = 600, 500
			s, err := store.New(store.Options{Client: redistest.Client(t), Prefix: redistest.Prefix(t), Timeout: 10 * time.Second, Settings: c.Settings})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Submit(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			pulls := work(t, s, c)
			throttles, err := c.Count(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			took := pulls[len(pulls)-1].end.Sub(pulls[0].begin)
			t.Logf("%d jobs in %v, ideal %v; %.2f throttles a job", 3*c.Jobs, took, time.Duration(3*c.Jobs)*time.Second/600, throttles)
			if c.Settings.Limiter == "gcra" {
				if throttles != 0 {
					t.Errorf("%.2f throttles a job", throttles)
				}
				bounded(t, pulls, 600, 60)
			}
			if broken, err := s.Audit(t.Context()); err != nil || len(broken) > 0 {
				t.Errorf("audit: %v, %v", broken, err)
			}
		})
	}
}

// call is one pull: its jobs started between begin and end.
type call struct {
	begin, end time.Time
	jobs       int
}

// work pulls and acknowledges until all is done, and dispatches each 100 ms.
func work(t *testing.T, s *store.Store, c Scenario) (pulls []call) {
	t.Helper()
	next := time.Now()
	for left := c.Tenants * c.Jobs; left > 0; {
		begin := time.Now()
		p, err := s.Pull(t.Context(), c.Batch)
		if err != nil {
			t.Fatal(err)
		}
		pulls = append(pulls, call{begin, time.Now(), len(p.Jobs)})
		acks := make([]store.Ack, len(p.Jobs))
		for i, j := range p.Jobs {
			acks[i] = store.Ack{Key: j.Key, Fence: j.Fence, Verdict: store.Done}
		}
		states, err := s.Ack(t.Context(), acks)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range states {
			if st != store.AckDone {
				t.Fatalf("acknowledged as %s", st)
			}
		}
		left -= len(acks)
		if !time.Now().Before(next) {
			if _, err := s.Dispatch(t.Context()); err != nil {
				t.Fatal(err)
			}
			next = time.Now().Add(c.Dispatch)
		}
		if !p.More && left > 0 {
			wait := time.Until(next)
			if p.Next > 0 {
				wait = min(wait, p.Next)
			}
			if err := s.Wait(t.Context(), wait); err != nil {
				t.Fatal(err)
			}
		}
	}
	return pulls
}

// bounded checks that between any two moments no more started than the rate and the burst allow.
func bounded(t *testing.T, pulls []call, rate, burst float64) {
	t.Helper()
	for i := range pulls {
		started := 0.0
		for k := i; k < len(pulls); k++ {
			started += float64(pulls[k].jobs)
			if d := pulls[k].end.Sub(pulls[i].begin); started > rate*d.Seconds()+burst+1e-3 {
				t.Fatalf("%v jobs started within %v; rate %v, burst %v", started, d, rate, burst)
			}
		}
	}
}
