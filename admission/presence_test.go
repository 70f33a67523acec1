package admission

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// stagedVisitor polls at its own interval, whatever is advised.
type stagedVisitor struct {
	name     string
	t        Ticket
	every    time.Duration // between two polls
	asleep   time.Duration // from joining on, it does not poll until then
	advised  time.Duration
	next     time.Duration
	state    State
	admitted int64
}

// stagedQueue makes visitors wait in a room whose clock is simulated, and returns the order in which they were admitted.
func stagedQueue(t *testing.T, p Policy, lasts time.Duration, visitors ...*stagedVisitor) (order []string) {
	t.Helper()
	clock := newTestClock()
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), clock, p)
	mustJoin(t, r, testID(), testClient(9)) // takes the burst
	for _, v := range visitors {
		clock.pass(time.Millisecond)
		id, client := testID(), testClient(1)
		s, refusal, err := r.Join(ctx5(t), Arrival{ID: id, Client: client, Interval: v.advised})
		if err != nil || refusal != Granted || s.State != Waiting {
			t.Fatalf("%s: %+v %q %v", v.name, s, refusal, err)
		}
		v.t, v.next = s.Ticket, max(v.every, v.asleep)
		v.t.ID, v.t.Client, v.t.Interval = id, client, v.advised
	}
	const step = time.Second
	for now := step; now < lasts; now += step {
		clock.pass(step)
		if err := r.Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
		for _, v := range visitors {
			if v.admitted > 0 || now < v.next {
				continue
			}
			v.next = now + v.every
			s, err := r.Check(ctx5(t), v.t)
			if err != nil {
				t.Fatal(err)
			}
			if v.state = s.State; s.State == Waiting && s.Renewed {
				v.t.Order, v.t.Seen, v.t.Epoch, v.t.Fence = s.Ticket.Order, s.Ticket.Seen, s.Ticket.Epoch, s.Ticket.Fence
			}
			v.admitted = s.AdmittedAt
		}
	}
	in := slices.DeleteFunc(slices.Clone(visitors), func(v *stagedVisitor) bool { return v.admitted == 0 })
	slices.SortStableFunc(in, func(a, b *stagedVisitor) int { return int(a.admitted - b.admitted) })
	for _, v := range in {
		order = append(order, v.name)
	}
	return order
}

func presencePolicy(rate int64) Policy {
	p := basePolicy
	p.Rate, p.Burst, p.ClaimWindow = rate, 1000, 10*time.Minute
	return p
}

// A hidden tab polls once a minute, however soon its turn is. It is not overtaken.
func TestPresence_HiddenTabIsNotOvertaken(t *testing.T) {
	short.Skip(t, "simulates minutes of a crowd")
	t.Parallel()
	var queue []*stagedVisitor
	var want []string
	for i := range 30 {
		v := &stagedVisitor{name: fmt.Sprintf("visible %d", i), every: 4 * time.Second, advised: 4 * time.Second}
		if i == 10 || i == 17 {
			v = &stagedVisitor{name: fmt.Sprintf("hidden %d", i), every: time.Minute, advised: 2 * time.Second}
		}
		queue = append(queue, v)
		want = append(want, v.name)
	}
	if got := stagedQueue(t, presencePolicy(70), 8*time.Minute, queue...); !slices.Equal(got, want) { // one in 14.3 s
		t.Errorf("admitted: %s", strings.Join(got, ", "))
	}
}

// A phone that does not poll for nine minutes is passed over meanwhile, and is the next to be admitted when it polls again.
func TestAbsence_FrozenPhoneKeepsPosition(t *testing.T) {
	short.Skip(t, "simulates minutes of a crowd")
	t.Parallel()
	var queue []*stagedVisitor
	for i := range 27 {
		queue = append(queue, &stagedVisitor{name: fmt.Sprintf("there %d", i), every: 4 * time.Second, advised: 4 * time.Second})
	}
	frozen, gone := queue[5], queue[6] // their turn comes after the hold of a join
	frozen.name, frozen.asleep = "frozen", 9*time.Minute
	gone.name, gone.asleep = "gone", 12*time.Minute
	got := stagedQueue(t, presencePolicy(33), 14*time.Minute, queue...) // one in 30.3 s
	at := slices.Index(got, "frozen")
	if at < 16 || at > 18 {
		t.Errorf("back after 9 minutes, in which 17 are admitted, it was admitted as number %d: %s", at, strings.Join(got, ", "))
	}
	if frozen.t.Order >= queue[7].t.Order {
		t.Error("its order is not what it was")
	}
	if slices.Contains(got, "gone") || gone.state != Expired {
		t.Errorf("12 minutes are beyond absence: state %d, admitted %s", gone.state, strings.Join(got, ", "))
	}
	if n := len(got); n != 26 {
		t.Errorf("%d were admitted", n)
	}
}

// commandCalls counts the scripts that a Redis server has run for clients.
func commandCalls(t *testing.T, client redis.UniversalClient) (n int) {
	t.Helper()
	info, err := client.Info(ctx5(t), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"evalsha", "eval", "fcall"} {
		if _, rest, ok := strings.Cut(info, "cmdstat_"+name+":calls="); ok {
			var calls int
			if _, err := fmt.Sscanf(rest, "%d", &calls); err != nil {
				t.Fatal(err)
			}
			n += calls
		}
	}
	return n
}

// The poll of a visitor far from the front is a check, in a batch, when the hold of the token does not reach beyond the next
// poll. A visitor who does not keep the renewed token causes no more checks.
func TestFarPolls_AskStoreOncePerHold(t *testing.T) {
	srv := redistest.Server(t)
	client, clock := srv.Client(), newTestClock()
	r := testRoom(t, client, "wr", clock, presencePolicy(0))
	const crowd, front = 1500, 1000
	tickets := make([]Ticket, crowd)
	for i := range tickets {
		tickets[i].ID = testID()
	}
	for from := 0; from < crowd; from += batchMost {
		qs := make([]enterQ, batchMost)
		for i := range qs {
			qs[i] = enrolling(r, tickets[from+i].ID, clock.us+int64(i-batchMost))
		}
		clock.pass(time.Millisecond)
		replies, err := r.calls.sendEnter(ctx5(t), qs)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range replies {
			k := &tickets[from+i]
			k.renew(&Ticket{Order: a.ord, Seen: a.h.time, Hold: 280 * time.Second, Epoch: a.h.epoch, Fence: a.h.fence})
			k.Interval = time.Minute
		}
	}
	clock.pass(time.Second)
	if err := r.Tick(ctx5(t)); err != nil {
		t.Fatal(err)
	}
	pass := func(seconds int) {
		t.Helper()
		for range seconds { // a room without a tick for 5 s stands still
			clock.pass(time.Second)
			if err := r.Tick(ctx5(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	far := tickets[front+50:]
	round := func() (calls, renewed int) {
		t.Helper()
		before := commandCalls(t, client)
		var all sync.WaitGroup
		var mu sync.Mutex
		for _, k := range far {
			all.Go(func() {
				s, err := r.Check(ctx5(t), k)
				if err != nil || s.State != Waiting || s.Ticket.Order != k.Order {
					t.Errorf("%+v %v", s, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if s.Renewed {
					renewed++
				}
			})
		}
		all.Wait()
		return commandCalls(t, client) - before, renewed
	}
	for range 6 { // from then on the hold of 280 s does not reach 10 s beyond the poll in a minute
		if calls, renewed := round(); calls != 0 || renewed != 0 {
			t.Fatalf("far polls of confirmed tickets: %d calls, %d renewed", calls, renewed)
		}
		pass(35)
	}
	pass(11)
	calls, renewed := round()
	if calls == 0 || calls > len(far)/4 || renewed != len(far) {
		t.Errorf("%d renewals took %d calls, %d were renewed", len(far), calls, renewed)
	}
	pass(2) // with the old tokens again
	if calls, renewed = round(); calls != 0 || renewed != len(far) {
		t.Errorf("polls with tokens that are not the newest: %d calls, %d got theirs", calls, renewed)
	}
}

// A place that has expired, and that no tick has removed yet, is no place of its account. Otherwise Join with Held would give a
// device of the account a new place.
func TestAccount_ExpiredPlaceIsNotHeld(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	p := basePolicy
	p.MinWait = time.Hour
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	a := Arrival{ID: ID{0: 9, 15: 1}, Client: testClient(1), Keyed: true, Account: true, Interval: time.Minute}
	if s, _, err := r.Join(ctx5(t), a); err != nil || s.State != Waiting || !s.New {
		t.Fatalf("%+v %v", s, err)
	}
	for end := c.now() + (p.Absence - time.Second).Microseconds(); c.now()+4_000_000 < end; {
		c.pass(4 * time.Second)
		mustTick(t, r)
	}
	c.pass(time.Second)
	mustTick(t, r)
	c.pass(4800 * time.Millisecond)
	a.Held = true
	if s, _, err := r.Join(ctx5(t), a); err != nil || s.State != Ended || s.New {
		t.Errorf("held: %+v %v", s, err)
	}
}
