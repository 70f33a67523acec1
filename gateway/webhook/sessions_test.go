package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/redistest"
)

// Sessions that expire and sessions that are revoked are reported once each, also when another gateway takes over meanwhile; one that is used
// is not.
func TestDispatcher_ReportsEndedSessions(t *testing.T) {
	f := newFleet(t)
	clock := time.Unix(1_800_000_000, 0)
	core, err := admission.New(admission.Options{
		Client: redistest.Server(t).Client(), Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
		Now: func() int64 { return clock.UnixMicro() },
	})
	if err != nil {
		t.Fatal(err)
	}
	room := core.Room("sale", admission.Policy{
		Enabled: true, Method: "fifo", Rate: 1_000_000, Burst: 1_000_000, Absence: 10 * time.Minute, ClaimWindow: 5 * time.Minute, SessionTTL: 40 * time.Second,
		OnStoreError: "wait", Strategy: "token_bucket", PollBudget: 1000,
	})
	tick := func() {
		t.Helper()
		if err := room.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tick()
	id := func(n byte) admission.ID { return admission.ID{n} }
	for n := byte(1); n <= 4; n++ {
		s, _, err := room.Join(t.Context(), admission.Arrival{ID: id(n), Client: admission.Client{n}})
		if err != nil || s.State != admission.Active {
			t.Fatal(s.State, err)
		}
	}
	r := newReceiver(t, nil)
	everything := to("all", r) // does not name session.ended
	asks := to("sessions", r, SessionEnded)
	a, b := f.gateway("a", everything, asks), f.gateway("b", everything, asks)
	rooms := func() []Room {
		return []Room{{ID: "sale", Up: true, Snapshot: room.Snapshot(), Now: room.RedisNow(), SessionEnds: room.SessionEnds}}
	}
	a.o.Rooms, b.o.Rooms = rooms, rooms
	sender := a
	pass := func(seconds int) {
		t.Helper()
		for range seconds {
			clock = clock.Add(time.Second)
			room.Touch(id(4), true)
			tick()
			f.turn(time.Second, sender)
		}
	}
	pass(50)
	if err := room.RevokeSession(t.Context(), "ann", id(2)); err != nil { // which is recorded as ending
		t.Fatal(err)
	}
	pass(2)
	sender = b // a dies while sessions are about to end
	pass(30)
	ends := map[string]int{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		if s.kind != SessionEnded {
			t.Errorf("%s was sent", s.kind)
		}
		var e struct {
			Data struct {
				Room     string
				Sessions []struct{ ID, Reason string }
			}
		}
		if err := json.Unmarshal(s.body, &e); err != nil || e.Data.Room != "sale" {
			t.Errorf("%s", s.body)
		}
		for _, x := range e.Data.Sessions {
			ends[x.ID+" "+x.Reason]++
		}
	}
	want := fmt.Sprint(map[string]int{id(1).String() + " expired": 1, id(2).String() + " revoked": 1, id(3).String() + " expired": 1})
	if got := fmt.Sprint(ends); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A long list becomes several events, which are queued together or not at all.
func TestSessionChanges_AreBatched(t *testing.T) {
	f := newFleet(t)
	var list []map[string]any
	for n := range 2*sessionBatch + 1 {
		list = append(list, map[string]any{"id": admission.ID{byte(n), byte(n >> 8)}.String(), "reason": "expired"})
	}
	ctx := context.Background()
	for round, want := range []int64{3, 3} { // the second gateway has seen the same, and is late
		moved, err := f.queue.Note(ctx, sessionChanges(f.now, &f.room, "", "1 x", list, []string{"hook"}))
		if err != nil || slices.Contains(moved, true) != (round == 0) {
			t.Fatal(moved, err)
		}
		if got := f.counts("hook").Pending; got != want {
			t.Errorf("round %d: %d events, want %d", round, got, want)
		}
	}
}

func FuzzParseEnds(f *testing.F) {
	f.Add("17 AQAAAAAAAAAAAAAAAAAAAA AgAAAAAAAAAAAAAAAAAAAA")
	f.Add("-1")
	f.Fuzz(func(t *testing.T, text string) {
		e := parseEnds(text)
		if again := parseEnds(e.text()); again.until != e.until || !slices.Equal(again.ending, e.ending) {
			t.Fatalf("%q is read as %v, and written as %q", text, e, e.text())
		}
	})
}
