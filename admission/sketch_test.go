package admission

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission/snapshot"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// audience of a long queue, seen through two gateways of which the second misses most ticks.
type longQueue struct {
	t     *rapid.T
	clock *testClock
	rooms []*Room
	queue []Ticket // ascending by order
	told  []map[ID]int64
	left  []int // in the middle of the queue, by tick
}

func (l *longQueue) ctx() context.Context { return context.Background() }

func (l *longQueue) enrol(orders []int64) {
	for chunk := range slices.Chunk(orders, batchMost) {
		qs := make([]enterQ, len(chunk))
		for i, o := range chunk {
			qs[i] = enterQ{kind: "enrol", id: testID(), client: testClient(1), hold: 255 * time.Second, t: Ticket{Order: o, Fence: 1}}
		}
		replies, err := l.rooms[0].calls.sendEnter(l.ctx(), qs)
		if err != nil {
			l.t.Fatal(err)
		}
		for i, a := range replies {
			if a.code != replyWaiting || a.ord != qs[i].t.Order {
				l.t.Fatalf("enrolled at %d with %+v", qs[i].t.Order, a)
			}
			l.queue = append(l.queue, Ticket{ID: qs[i].id, Order: a.ord, Seen: a.h.time, Epoch: a.h.epoch, Fence: a.h.fence})
		}
	}
	slices.SortFunc(l.queue, func(a, b Ticket) int { return int(a.Order - b.Order) })
}

// leave takes n out from rank on.
func (l *longQueue) leave(from, n int) {
	n = min(n, len(l.queue)-from)
	for i := from; i < from+n; i++ {
		if err := l.rooms[0].Leave(l.ctx(), l.queue[i]); err != nil {
			l.t.Fatal(err)
		}
	}
	l.queue = slices.Delete(l.queue, from, from+n)
	l.left[len(l.left)-1] += n
}

func (l *longQueue) tick(second bool) {
	l.clock.pass(250 * time.Millisecond)
	for i, r := range l.rooms {
		if i == 1 && !second {
			continue
		}
		if err := r.Tick(l.ctx()); err != nil {
			l.t.Fatal(err)
		}
	}
	waiting := l.rooms[0].Snapshot().Waiting
	l.queue = l.queue[len(l.queue)-int(waiting):] // admitted, from the head
	l.left = append(l.left, 0)
}

// check compares the positions of sampled tickets with their ranks. exact: the sketch was counted again since the last departure.
func (l *longQueue) check(exact bool) {
	snap := l.rooms[0].Snapshot()
	slack := int64(2)
	if !exact {
		for _, n := range l.left {
			slack += int64(n)
		}
	}
	for i := 0; i < len(l.queue); i += 1 + len(l.queue)/400 {
		t, rank := l.queue[i], int64(i)
		at := l.rooms[0].Ahead(t.Order)
		allowed := rank/200 + slack
		if i < len(snap.Front) {
			allowed = 0
			if _, ok := slices.BinarySearchFunc(snap.Ceilings, t.Order, func(r snapshot.Rank, o int64) int { return int(r.Order - o) }); ok {
				allowed = 10 // it was shown before
			}
		}
		if at < rank-allowed || at > rank+allowed {
			l.t.Fatalf("rank %d of %d is shown as %d (front %d, %d knots)", rank, len(l.queue), at, len(snap.Front), len(snap.Sketch))
		}
	}
	for g, r := range l.rooms {
		for i := 0; i < len(l.queue); i += 1 + len(l.queue)/400 {
			t := l.queue[i]
			at := r.Ahead(t.Order)
			if before, ok := l.told[g][t.ID]; ok && at > before {
				l.t.Fatalf("gateway %d: order %d (rank %d) was shown as %d, now %d", g, t.Order, i, before, at)
			}
			l.told[g][t.ID] = at
		}
	}
}

// settled is after how many ticks every sample of such a queue has been counted anew, and the sketch is no longer rough: after a crowd
// has joined it is for 8 ticks and one for each chunk, and until then ranks that were shown do not bind later ones (lua/lib/sketch.lua).
const settled = 24

// Positions are exact in the front and within 0.5 % behind it, and do not grow while nobody joins.
func TestPositions_AreExactAtFront(t *testing.T) {
	short.Skip(t, "makes many cases")
	t.Parallel()
	client := redistest.Client(t)
	rapid.Check(t, func(t *rapid.T) {
		clock := newTestClock()
		prefix := "positions" + testID().String()
		policy := basePolicy
		policy.Rate, policy.Burst = rapid.Int64Range(0, 200_000).Draw(t, "rate"), 1000
		l := &longQueue{t: t, clock: clock, left: []int{0}}
		for _, name := range []string{"a", "b"} {
			core, err := New(Options{Client: client, Prefix: prefix, Timeout: patience, Log: quiet(), Now: clock.now, Gateway: name})
			if err != nil {
				t.Fatal(err)
			}
			l.rooms = append(l.rooms, core.Room("sale", policy))
			l.told = append(l.told, map[ID]int64{})
		}
		defer func() {
			client.Unlink(context.Background(), l.rooms[0].keys...)
		}()
		l.tick(true)
		// Arrivals in clumps: seconds of silence, and a thousand in a millisecond.
		var orders []int64
		at := clock.us - 5*60*1e6
		arrivals := func(n int, until int64) {
			for len(orders) < n {
				clump := rapid.IntRange(1, 800).Draw(t, "clump")
				spacing := rapid.SampledFrom([]int64{1, 30, 4000}).Draw(t, "spacing")
				at = min(at+rapid.Int64Range(1, 3e6).Draw(t, "pause"), until-int64(clump)*spacing)
				for range clump {
					at += spacing
					orders = append(orders, at)
				}
			}
			slices.Sort(orders)
			l.enrol(slices.Compact(orders))
			orders = orders[:0]
		}
		arrivals(rapid.IntRange(1500, 2200).Draw(t, "visitors"), clock.us-1)
		rotate := func(ticks int) {
			for range ticks {
				l.tick(rapid.IntRange(0, 3).Draw(t, "second gateway") == 0)
				l.check(false)
			}
		}
		for range settled {
			l.tick(true)
		}
		l.left = []int{0}
		l.check(true)
		for range rapid.IntRange(1, 2).Draw(t, "steps") {
			step := rapid.SampledFrom([]string{"leave", "leave", "pass", "join"}).Draw(t, "step")
			switch step {
			case "leave":
				for range rapid.IntRange(1, 10).Draw(t, "groups") {
					if len(l.queue) > 10 {
						l.leave(rapid.IntRange(0, len(l.queue)-1).Draw(t, "from"), rapid.IntRange(1, 40).Draw(t, "how many"))
					}
				}
				rotate(4)
			case "join":
				at = max(at, clock.us-1e6)
				arrivals(rapid.IntRange(100, 1500).Draw(t, "more"), clock.us-1)
			case "pass":
				rotate(rapid.IntRange(1, 20).Draw(t, "ticks"))
			}
			// By now every knot is counted anew.
			for range settled {
				l.tick(step == "join")
			}
			if step == "join" { // the queue grew
				clear(l.told[0])
				clear(l.told[1])
			}
			l.left = []int{0}
			l.check(true)
		}
	})
}
