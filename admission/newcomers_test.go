package admission

import (
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

func TestArrivals_CountedOnce(t *testing.T) {
	const each, who = 20_000, 4
	var a arrivals
	var mu sync.Mutex
	var taken tally
	told := map[int64]int64{}
	tell := func() {
		mu.Lock()
		defer mu.Unlock()
		now := a.tally()
		for i := range now {
			second, n := now.since(&taken, i)
			told[second] += n
		}
		taken = now
	}
	var all sync.WaitGroup
	for range who {
		all.Go(func() {
			for i := range int64(each) {
				mu.Lock()
				before := taken
				mu.Unlock()
				a.add(i/1000, &before)
				if i%777 == 0 {
					tell()
				}
			}
		})
	}
	all.Wait()
	tell()
	var n int64
	for _, k := range told {
		n += k
	}
	if n != each*who {
		t.Errorf("%d arrivals were sent as %d", each*who, n)
	}
}

// A writer that is delayed between two reads of a word removes no count: a word with the same value may count another second by
// then.
func TestArrivals_DelayedWriterLosesNoCount(t *testing.T) {
	var a arrivals
	var told int64
	var before tally
	tell := func() tally {
		now := a.tally()
		for i := range now {
			_, n := now.since(&before, i)
			told += n
		}
		before = now
		return now
	}
	add := func(n int, second int64, taken tally) {
		for range n {
			a.add(second, &taken)
		}
	}
	add(5, 1, tally{})
	old := tell()
	add(1, 1+int64(len(a)), old) // in its place
	add(5, 1, tell())            // which comes late
	add(1, 1+2*int64(len(a)), old)
	tell()
	if told != 12 {
		t.Errorf("12 arrivals were sent as %d", told)
	}
}

// A gateway that comes second in a tick sends its arrivals to the store after the snapshot of that tick was built.
func TestArrivals_CountAsAheadUntilSnapshot(t *testing.T) {
	client, prefix, clock := redistest.Client(t), redistest.Prefix(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst = 0, 1000
	first := testRoom(t, client, prefix, clock, p)
	second := testRoom(t, client, prefix, clock, p)
	tick := func(r *Room, after time.Duration) {
		t.Helper()
		clock.pass(after)
		if err := r.Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 3 {
		qs := make([]enterQ, 500)
		for i := range qs {
			qs[i] = enrolling(first, testID(), clock.us-int64(1500-500*n-i))
		}
		if _, err := first.calls.sendEnter(ctx5(t), qs); err != nil {
			t.Fatal(err)
		}
	}
	tick(first, time.Second)
	tick(second, 0)
	const arrived = 100
	for range arrived {
		if s := mustJoin(t, second, testID(), testClient(1)); s.Ticket.Epoch != "" {
			t.Fatal("a place in a long queue was not signed but enrolled")
		}
	}
	last := clock.now()
	is := func(r *Room, when string, want int64) {
		t.Helper()
		if n := r.Ahead(last + 1e6); n != want {
			t.Errorf("%s: %d ahead, want %d", when, n, want)
		}
	}
	is(second, "signed", 1500+arrived)
	tick(first, 250*time.Millisecond)
	tick(second, time.Millisecond) // too late for this one's snapshot
	is(second, "told", 1500+arrived)
	tick(first, 250*time.Millisecond)
	is(first, "in the snapshot, elsewhere", 1500+arrived)
	tick(second, time.Millisecond)
	is(second, "in the snapshot", 1500+arrived)
	if n := second.view.length(second.Snapshot()); n != 1500+arrived {
		t.Errorf("%d in the queue, want %d", n, 1500+arrived)
	}
}

// enrolling asks for the place of a ticket that was confirmed before, wherever the front ends.
func enrolling(r *Room, id ID, order int64) enterQ {
	return enterQ{kind: "enrol", id: id, hold: 280 * time.Second, t: Ticket{ID: id, Order: order, Seen: order, Epoch: r.Snapshot().Epoch, Fence: 1}}
}
