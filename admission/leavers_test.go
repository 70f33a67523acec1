package admission

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// passedOf adds up Passed: tickets admitted and absent, and whether the admitted waited for those seconds at least, and the absent
// for fewer.
func passedOf(s *Snapshot, seconds float64) (admitted, absent float64, apart bool) {
	apart = true
	for _, h := range s.Passed {
		begin := math.Exp2(float64(h.Bucket)/4) - 1
		admitted += float64(h.Present) / 1000
		absent += float64(h.Absent) / 1000
		if end := math.Exp2(float64(h.Bucket+1)/4) - 1; h.Present > 0 && end < seconds || h.Absent > 0 && begin > seconds {
			apart = false
		}
		if mean := float64(h.Exposure) / float64(h.Present+h.Absent); mean < 0 || mean > math.Exp2(float64(h.Bucket+1)/4)-1-begin+0.001 {
			apart = false
		}
	}
	return admitted, absent, apart
}

// The snapshot counts the tickets at the front that were admitted and those that were absent, by time in the queue. A ticket
// that comes back counts as present, another gateway reads the same counts, and a store that lost its data counts from zero.
func TestHeads_CountAdmittedAndAbsent(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	t.Parallel()
	clock, client, prefix := newTestClock(), redistest.Client(t), redistest.Prefix(t)
	p := presencePolicy(1000)
	r := testRoom(t, client, prefix, clock, p)
	mustJoin(t, r, testID(), testClient(9)) // takes the burst
	var present, silent []Ticket
	for i := range 45 {
		clock.pass(time.Millisecond)
		id, client := testID(), testClient(1)
		s, refusal, err := r.Join(ctx5(t), Arrival{ID: id, Client: client, Interval: time.Second})
		if err != nil || refusal != Granted || s.State != Waiting {
			t.Fatalf("%+v %q %v", s, refusal, err)
		}
		k := s.Ticket
		k.ID, k.Client, k.Interval = id, client, time.Second
		if i%3 == 2 {
			silent = append(silent, k)
		} else {
			present = append(present, k)
		}
	}
	pass := func(seconds int) {
		t.Helper()
		for second := range seconds {
			clock.pass(time.Second)
			for _, k := range present {
				if second%5 != 0 {
					break
				}
				if _, err := r.Check(ctx5(t), k); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Tick(ctx5(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.Pause(ctx5(t), "test"); err != nil {
		t.Fatal(err)
	}
	pass(200)
	if in, out, _ := passedOf(r.Snapshot(), 200); in+out != 0 {
		t.Errorf("%v admitted and %v absent before anybody behind the first was reached", in, out)
	}
	if err := r.Resume(ctx5(t), "test"); err != nil {
		t.Fatal(err)
	}
	pass(35)
	in, out, apart := passedOf(r.Snapshot(), 190)
	if in < 26 || in > 30 || out < 13 || out > 15 || !apart {
		t.Errorf("%.1f admitted and %.1f absent, want 30 and 15, a little less for the time since: %+v", in, out, r.Snapshot().Passed)
	}

	for _, k := range silent[:5] {
		if s, err := r.Check(ctx5(t), k); err != nil || s.State != Waiting {
			t.Fatalf("a ticket that comes back: %+v %v", s, err)
		}
	}
	clock.pass(time.Second)
	if err := r.Tick(ctx5(t)); err != nil {
		t.Fatal(err)
	}
	if _, back, _ := passedOf(r.Snapshot(), 0); math.Abs(out-back-5) > 0.2 {
		t.Errorf("%.1f were absent, and %.1f after five came back", out, back)
	}

	other := testRoom(t, client, prefix, clock, p)
	if err := other.Tick(ctx5(t)); err != nil {
		t.Fatal(err)
	}
	if got, want := other.Snapshot().Passed, r.Snapshot().Passed; len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("another gateway reads %+v, want %+v", got, want)
	}
	if err := client.Del(ctx5(t), r.keys[:]...).Err(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		clock.pass(time.Second)
		if err := r.Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	if passed := r.Snapshot().Passed; len(passed) != 0 {
		t.Errorf("a store that lost its data has %+v", passed)
	}
}

// The snapshot samples waiting tickets by time in the queue. For the tickets at the front it also holds how long they count as
// present and which missed a poll.
func TestSnapshot_CountsHolds(t *testing.T) {
	t.Parallel()
	clock := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), clock, presencePolicy(1000))
	mustJoin(t, r, testID(), testClient(9)) // takes the burst
	if err := r.Pause(ctx5(t), "test"); err != nil {
		t.Fatal(err)
	}
	var polling []Ticket
	for i := range 12 {
		clock.pass(time.Millisecond)
		id, client := testID(), testClient(1)
		s, refusal, err := r.Join(ctx5(t), Arrival{ID: id, Client: client, Interval: time.Second})
		if err != nil || refusal != Granted || s.State != Waiting {
			t.Fatalf("%+v %q %v", s, refusal, err)
		}
		if i%3 != 2 {
			k := s.Ticket
			k.ID, k.Client, k.Interval = id, client, time.Second
			polling = append(polling, k)
		}
	}
	look := func(seconds int) (holds [3]int64, sample [2]float64) {
		t.Helper()
		for range seconds {
			clock.pass(time.Second)
			for _, k := range polling {
				if _, err := r.Check(ctx5(t), k); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Tick(ctx5(t)); err != nil {
				t.Fatal(err)
			}
		}
		s := r.Snapshot()
		if len(s.Holds) != 12 {
			t.Fatalf("holds of %d of 12 tickets: %v", len(s.Holds), s.Holds)
		}
		for _, a := range s.Sample {
			sample[0] += float64(a.Present)
			sample[1] += float64(a.Absent)
		}
		return [3]int64(s.Holds[:3]), sample
	}
	if holds, sample := look(5); holds != [3]int64{20, 20, 15} || sample[1] != 0 || sample[0] == 0 {
		t.Errorf("after 5 s: %v, %v", holds, sample)
	}
	if holds, _ := look(10); holds != [3]int64{20, 20, -1 - 5} {
		t.Errorf("after 15 s the third has missed polls: %v", holds)
	}
	if holds, sample := look(45); holds != [3]int64{20, 20, 0} || sample[1]/(sample[0]+sample[1]) < 0.2 {
		t.Errorf("after 60 s the third is absent: %v, sample %v", holds, sample)
	}
}

// The history counts tickets that were parked, those of them that came back, and admissions that were not claimed, by time in
// the queue.
func TestHistory_CountsDeparturesByTimeInQueue(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	t.Parallel()
	clock := newTestClock()
	p := presencePolicy(1000)
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), clock, p)
	mustJoin(t, r, testID(), testClient(9)) // takes the burst
	if err := r.Pause(ctx5(t), "test"); err != nil {
		t.Fatal(err)
	}
	join := func() Ticket {
		t.Helper()
		id, client := testID(), testClient(1)
		s, refusal, err := r.Join(ctx5(t), Arrival{ID: id, Client: client, Interval: time.Second})
		if err != nil || refusal != Granted || s.State != Waiting {
			t.Fatalf("%+v %q %v", s, refusal, err)
		}
		k := s.Ticket
		k.ID, k.Client, k.Interval = id, client, time.Second
		return k
	}
	pass := func(seconds int) {
		t.Helper()
		for range seconds {
			clock.pass(time.Second)
			if err := r.Tick(ctx5(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	silent := []Ticket{join(), join()}
	pass(40) // the two are absent now, since 30 s
	join()   // is admitted, and does not come
	pass(5)
	if err := r.Resume(ctx5(t), "test"); err != nil {
		t.Fatal(err)
	}
	pass(3)
	if _, err := r.Check(ctx5(t), silent[0]); err != nil {
		t.Fatal(err)
	}
	pass(int(2*p.ClaimWindow/time.Second) + 10)
	history, err := r.History(ctx5(t), 60)
	if err != nil {
		t.Fatal(err)
	}
	var got Minute
	for _, m := range history {
		got.Returned += m.Returned
		got.Absent = append(got.Absent, m.Absent...)
		got.Lapsed = append(got.Lapsed, m.Lapsed...)
	}
	// Absent since 30 s; admitted after 6 s, and the one who came back after 48 s or so.
	if want := []AgeTime{{15, 2}}; !slices.Equal(got.Absent, want) || got.Returned != 1 {
		t.Errorf("absent %v, %d came back; want %v and 1", got.Absent, got.Returned, want)
	}
	slices.SortFunc(got.Lapsed, func(a, b AgeTime) int { return int(a.From - b.From) })
	if want := []AgeTime{{3, 1}, {31, 1}}; !slices.Equal(got.Lapsed, want) {
		t.Errorf("lapsed %v, want %v", got.Lapsed, want)
	}
}
