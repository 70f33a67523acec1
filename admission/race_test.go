package admission_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// Eight gateways tick one room concurrently on Redis's own clock while hundreds of visitors join, poll and claim through any of
// them. The limit and the order hold, a ticket makes one session, and no place is lost.
func TestRace_GatewaysKeepPromises(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	const (
		gateways = 8
		visitors = 400
		rate     = 80_000 // thousandths
		burst    = 10_000
	)
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	running, stop := context.WithCancel(ctx)
	var loops sync.WaitGroup
	rooms := make([]*Room, gateways)
	for i := range rooms {
		core, err := New(Options{Client: client, Prefix: prefix, Timeout: patience, Tick: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		rooms[i] = core.Room("sale", Policy{
			Enabled: true, Method: FIFO, Rate: rate, Burst: burst, Absence: 10 * time.Minute,
			ClaimWindow: 5 * time.Minute, SessionTTL: 5 * time.Minute, OnStoreError: OnErrorWait,
		})
		if err := rooms[i].Tick(ctx); err != nil {
			t.Fatal(err)
		}
		loops.Go(func() { _ = core.Run(running) })
	}

	type result struct {
		order, at int64
		at2       int64 // of a second claim through another gateway
	}
	results := make([]result, visitors)
	var crowd sync.WaitGroup
	for v := range visitors {
		crowd.Go(func() {
			var id ID
			_, _ = rand.Read(id[:])
			client := Client{1, byte(v), byte(v >> 8)}
			pick := func(n int) *Room { return rooms[(v+n)%gateways] }
			s, refusal, err := pick(0).Join(ctx, Arrival{ID: id, Client: client, Interval: 2 * time.Second})
			if err != nil || refusal != Granted {
				t.Errorf("join: %v %q", err, refusal)
				return
			}
			ticket := s.Ticket
			ticket.Client = client
			order := s.Ticket.Order
			if s.State == Active {
				order = 0 // nobody was ahead
			}
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for n := 1; s.State != Active; n++ {
				select {
				case <-ctx.Done():
					t.Errorf("visitor %d never got in: %+v", v, s)
					return
				case <-tick.C:
				}
				s, err = pick(n).Claim(ctx, ticket)
				if err != nil && !errors.Is(err, ErrNotYet) {
					t.Errorf("claim: %v", err)
					return
				}
			}
			again, err := pick(3).Claim(ctx, ticket)
			for errors.Is(err, ErrNotYet) && ctx.Err() == nil { // the last reply is less than a second old
				<-tick.C
				again, err = pick(3).Claim(ctx, ticket)
			}
			if err != nil {
				t.Errorf("second claim: %v", err)
			}
			results[v] = result{order, s.AdmittedAt, again.AdmittedAt}
		})
	}
	crowd.Wait()
	stop()
	loops.Wait()
	if t.Failed() {
		return
	}
	at := make([]int64, 0, visitors)
	for v, r := range results {
		if r.at == 0 || r.at2 != r.at {
			t.Fatalf("visitor %d: admitted at %d, again %d", v, r.at, r.at2)
		}
		at = append(at, r.at)
	}
	slices.Sort(at)
	// Any window of admissions: at most rate·dt + burst.
	for i := range at {
		for j := i; j < len(at); j++ {
			if allowed := (at[j]-at[i])*rate/1_000_000 + burst; int64(j-i+1)*1000 > allowed {
				t.Fatalf("%d admitted within %d µs, %d/1000 allowed", j-i+1, at[j]-at[i], allowed)
			}
		}
	}
	slices.SortFunc(results, func(a, b result) int { return cmp.Compare(a.order, b.order) })
	for i := 1; i < len(results); i++ {
		if a, b := results[i-1], results[i]; a.order > 0 && b.order > a.order && b.at < a.at {
			t.Fatalf("order %d was admitted at %d, before order %d at %d", b.order, b.at, a.order, a.at)
		}
	}
}
