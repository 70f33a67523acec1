package admission

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Whatever happens to tickets that share two presence buckets, each queued or parked ticket has one record, no other ticket has
// any, and a ticket that polls in time does not expire with its neighbours.
func TestPresenceBuckets_HoldQueuedTicketsOnly(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	rapid.Check(t, func(t *rapid.T) {
		ctx, clock := context.Background(), newTestClock()
		p := basePolicy
		p.Rate, p.Burst, p.Absence = rapid.Int64Range(0, 2000).Draw(t, "rate"), 1000, 2*time.Minute
		core, err := New(Options{Client: client, Prefix: "bags" + testID().String(), Timeout: patience, Log: quiet(), Now: clock.now})
		if err != nil {
			t.Fatal(err)
		}
		r := core.Room("sale", p)
		defer func() { client.Unlink(ctx, r.keys...) }()
		script := func(name string, args ...any) []any {
			_, rest, err := r.store.do(ctx, 5*time.Second, name, args...)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return rest
		}
		tick := func() {
			if err := r.Tick(ctx); err != nil {
				t.Fatal(err)
			}
		}
		tick()
		// Ids of few values: a record may begin within the end of one and the beginning of the next.
		id := rapid.Custom(func(t *rapid.T) string {
			id := strings.Repeat("\x00", 15) + string(rune(rapid.IntRange(0, 15).Draw(t, "last")))
			if rapid.Bool().Draw(t, "other bag") {
				id = id[:2] + "\x80" + id[3:]
			}
			return id
		})
		replied := map[string]int64{} // room time
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			who := id.Draw(t, "who")
			switch rapid.SampledFrom([]string{"join", "join", "join", "hear", "hear", "leave", "revoke", "beat", "pass", "pass", "reset", "restore"}).Draw(t, "step") {
			case "join":
				if code := script("room_enter", "keyed", who, "", 30, "")[0]; code == replyWaiting {
					replied[who] = r.Now()
				}
			case "hear":
				code := script("room_seen", who, "", 30)[0]
				if at, known := replied[who]; known && code == replyUnknown && r.Now()-at < p.Absence.Microseconds() {
					t.Fatalf("%x polled %d µs ago and is not in the queue", who, r.Now()-at)
				}
				if replied[who] = r.Now(); code != replyWaiting {
					delete(replied, who)
				}
			case "leave":
				script("room_leave", "", r.id, ReasonLeft, "", who, 0, 0)
				delete(replied, who)
			case "revoke":
				script("room_revoke", "", r.id, "", who)
				delete(replied, who)
			case "beat":
				script("room_heartbeat", who, "", 0, "")
				delete(replied, who)
			case "reset":
				if rapid.IntRange(0, 5).Draw(t, "rarely") == 0 {
					if err := r.Reset(ctx, "ann"); err != nil {
						t.Fatal(err)
					}
					clear(replied)
				}
			case "restore": // by a gateway that knew another epoch
				args := []any{clock.us, "0.x", 1, r.view.policyArg(), "y", clock.us, clock.us, "", 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "admitted", who, clock.us, clock.us, ""}
				if _, err := core.scripts.Run(ctx, "room_restore", r.keys, args...); err != nil {
					t.Fatal(err)
				}
				delete(replied, who)
			case "pass":
				for range rapid.IntRange(1, 40).Draw(t, "seconds") {
					clock.pass(time.Second)
					tick()
				}
			}
			queue, err := client.ZRange(ctx, r.keys[2], 0, -1).Result()
			if err != nil {
				t.Fatal(err)
			}
			parked, err := client.ZRange(ctx, r.keys[3], 0, -1).Result()
			if err != nil {
				t.Fatal(err)
			}
			bags, err := client.HGetAll(ctx, r.keys[4]).Result()
			if err != nil {
				t.Fatal(err)
			}
			var records []string
			for field, bag := range bags {
				for record := range slices.Chunk([]byte(bag), 21) {
					records = append(records, field[:2]+string(record[:14]))
					if (record[0] >= 128) != (field[2] == '1') || len(record) != 21 {
						t.Fatalf("bag %q holds %x", field, record)
					}
				}
			}
			want := slices.Concat(queue, parked)
			slices.Sort(want)
			slices.Sort(records)
			if !slices.Equal(records, want) {
				t.Fatalf("records of %x, in the queue %x, parked %x", records, queue, parked)
			}
		}
	})
}

// The poll of a ticket expires absent tickets in its bucket, a bounded number at a time, and no others.
func TestPresenceBuckets_PollExpiresAbsentNeighbours(t *testing.T) {
	client, clock := redistest.Client(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst, p.Absence = 0, 1000, 2*time.Minute
	r := testRoom(t, client, redistest.Prefix(t), clock, p)
	ids := make([]ID, 8)
	for i := range ids {
		ids[i] = ID{1, 2, 3, byte(i)}
		if s, _, err := r.Join(ctx5(t), Arrival{ID: ids[i], Keyed: true}); err != nil || s.State != Waiting {
			t.Fatalf("%+v %v", s, err)
		}
	}
	hear := func(id ID) {
		t.Helper()
		if a, err := r.calls.sendSeen(ctx5(t), []seenQ{{id: id, hold: 30 * time.Second}}); err != nil || a[0].code != replyWaiting {
			t.Fatalf("%+v %v", a, err)
		}
	}
	for range 30 { // until absence
		clock.pass(4 * time.Second)
		hear(ids[0])
		hear(ids[6])
		if err := r.Tick(ctx5(t)); err != nil {
			t.Fatal(err)
		}
	}
	clock.pass(4 * time.Second) // no further tick expires a ticket
	for _, want := range []int64{5, 3, 2} {
		hear(ids[0])
		queue, _ := client.ZCard(ctx5(t), r.keys[2]).Result()
		parked, _ := client.ZCard(ctx5(t), r.keys[3]).Result()
		if queue+parked != want {
			t.Errorf("%d are left, want %d", queue+parked, want)
		}
	}
	hear(ids[6])
}

// A tick expires absent tickets behind present ones, and parked tickets, even if no poll reaches their buckets.
func TestTick_ExpiresAbsentBehindPresent(t *testing.T) {
	client, clock := redistest.Client(t), newTestClock()
	p := basePolicy
	p.Rate, p.Burst, p.Absence = 0, 1000, 2*time.Minute
	r := testRoom(t, client, redistest.Prefix(t), clock, p)
	ids := []ID{{1}, {2}, {3}}
	for _, id := range ids {
		clock.pass(time.Millisecond)
		if s, _, err := r.Join(ctx5(t), Arrival{ID: id, Keyed: true}); err != nil || s.State != Waiting {
			t.Fatalf("%+v %v", s, err)
		}
	}
	in := func() (all [2]int64) {
		t.Helper()
		for i := range all {
			n, err := client.ZCard(ctx5(t), r.keys[2+i]).Result()
			if err != nil {
				t.Fatal(err)
			}
			all[i] = n
		}
		return all
	}
	pass := func(ticks int) {
		t.Helper()
		for range ticks {
			clock.pass(4 * time.Second)
			if a, err := r.calls.sendSeen(ctx5(t), []seenQ{{id: ids[1], hold: 30 * time.Second}}); err != nil || a[0].code != replyWaiting {
				t.Fatalf("%+v %v", a, err)
			}
			if err := r.Tick(ctx5(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	pass(30)
	if n := in(); n != [2]int64{2, 1} {
		t.Errorf("before absence: %d in the queue and parked", n)
	}
	pass(2)
	if n := in(); n != [2]int64{1, 0} {
		t.Errorf("after absence: %d in the queue and parked", n)
	}
}
