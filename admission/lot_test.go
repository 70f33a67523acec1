package admission

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// lots is the gateways of one lottery, whose secrets may differ.
type lots struct {
	t  *testing.T
	c  *testClock
	at Policy
}

func (l *lots) secret(s string) Policy {
	p := l.at
	p.Plan = NewPlan(bytes.Repeat([]byte(s), 8), "sale", &p, nil)
	return p
}

func (l *lots) pass(seconds int, rooms ...*Room) {
	l.t.Helper()
	for range seconds {
		l.c.pass(time.Second)
		for _, r := range rooms {
			mustTick(l.t, r)
		}
	}
}

// commits checks that gateways report the commitment of a policy.
func (l *lots) commits(to Policy, rooms ...*Room) {
	l.t.Helper()
	want := to.Plan.Draw(to.OpensAt).Commitment()
	for i, r := range rooms {
		if got, _, _ := r.Commitment(r.view.schedule.Load().Policy.Plan.Draw(to.OpensAt)); got != want {
			l.t.Fatalf("gateway %d has the commitment %x, want %x", i, got[:4], want[:4])
		}
	}
}

// Of two gateways with different secrets the second adopts the commitment of the first, also when the store has lost it. The
// second logs that its secret differs and draws with the seed that the first publishes at the opening. Every gateway returns
// the committed order.
func TestDrawSecret_DifferentSecretsMakeOneDraw(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	l := &lots{t: t, c: newTestClock()}
	l.at = lottery(l.c.now(), 60*time.Second)
	first, second := l.secret("one "), l.secret("two ")
	a, b := testRoom(t, client, prefix, l.c, first), testRoom(t, client, prefix, l.c, second)
	var log bytes.Buffer
	b.c.o.Log = slog.New(slog.NewJSONHandler(&log, nil))
	all := append(gather(t, a, 4), gather(t, b, 4)...)
	l.pass(2, a, b)
	l.commits(first, a, b)
	if b.DrawsApart() || log.Len() > 0 {
		t.Errorf("the difference is logged too early: %s", log.String())
	}
	l.pass(20, b, a)
	if !b.DrawsApart() || a.DrawsApart() {
		t.Errorf("apart: %t %t, want it of the second", a.DrawsApart(), b.DrawsApart())
	}
	if s := log.String(); strings.Count(s, "queue.draw_secret_file") != 1 || strings.Contains(s, "two two") {
		t.Errorf("logged: %s", s)
	}

	keys, err := client.Keys(ctx5(t), prefix+":{room:*").Result()
	if err != nil || client.Del(ctx5(t), keys...).Err() != nil {
		t.Fatal(err)
	}
	l.pass(2, b) // it is the first to come to the new store
	l.commits(first, b)
	l.pass(20, b, a)
	l.commits(first, a, b)
	for _, g := range all { // of an epoch that was lost
		g.keep(mustCheck(t, b, g.t))
	}

	if _, _, known := b.Commitment(second.Plan.Draw(second.OpensAt)); known {
		t.Error("the seed is published before the opening")
	}
	for a.Snapshot().Drawn == 0 {
		l.pass(1, b, a)
	}
	l.pass(1, a, b)
	drawn, draw := a.Snapshot().Drawn, first.Plan.Draw(first.OpensAt)
	for i, g := range all {
		for _, r := range []*Room{b, a} {
			if s := mustCheck(t, r, g.t); s.State > Admitted || s.Ticket.Order != draw.Order(g.t.ID, drawn) && s.State == Waiting {
				t.Errorf("visitor %d: %+v, want the order %d", i, s, draw.Order(g.t.ID, drawn))
			}
		}
	}
	l.pass(30, b) // the seed outlives the gateway that had it
	l.commits(first, b)
	if _, seed, known := b.Commitment(second.Plan.Draw(second.OpensAt)); !known || seed != draw.Seed {
		t.Error("the seed that will be published is not the one that it was drawn by")
	}
}

// A secret that all gateways change before the opening counts ten seconds after the last gateway had the old one. A single
// gateway draws by its own secret.
func TestDrawSecret_ChangedByAllGateways(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	l := &lots{t: t, c: newTestClock()}
	l.at = lottery(l.c.now(), 5*time.Minute)
	old, fresh := l.secret("old "), l.secret("new ")
	a, b := testRoom(t, client, prefix, l.c, old), testRoom(t, client, prefix, l.c, old)
	all := gather(t, a, 3)
	l.pass(2, a, b)
	a.setPolicy(fresh)
	l.pass(15, a, b)
	l.commits(old, a, b)
	if !a.DrawsApart() {
		t.Error("no gateway logs that one still has the old secret")
	}
	b.setPolicy(fresh)
	l.pass(11, a, b)
	l.commits(fresh, a, b)
	if a.DrawsApart() || b.DrawsApart() {
		t.Error("all have one file")
	}
	for a.Snapshot().Drawn == 0 {
		l.pass(10, b)
		l.pass(1, a)
		for _, g := range all {
			g.keep(mustCheck(t, a, g.t))
		}
	}
	for i, g := range all {
		if want := fresh.Plan.Draw(fresh.OpensAt).Order(g.t.ID, a.Snapshot().Drawn); g.t.Order != want {
			t.Errorf("visitor %d has the order %d, want %d", i, g.t.Order, want)
		}
	}
}

// If the gateway whose commitment counts stops before it publishes the seed, nobody is admitted before the visitors of the
// pre-queue, until another commitment counts; the draw then follows that one.
func TestDrawSecret_UnknownSeedAdmitsNobody(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	l := &lots{t: t, c: newTestClock()}
	l.at = lottery(l.c.now(), 60*time.Second)
	first, second := l.secret("one "), l.secret("two ")
	a, b := testRoom(t, client, prefix, l.c, first), testRoom(t, client, prefix, l.c, second)
	all := gather(t, b, 3)
	l.pass(58, a, b)
	for _, g := range all {
		g.keep(mustCheck(t, b, g.t))
	}
	for b.Snapshot().Drawn == 0 { // a is gone
		l.pass(1, b)
	}
	l.pass(6, b)
	l.commits(first, b)
	if s := mustJoin(t, b, testID(), testClient(2)); s.State != Waiting {
		t.Errorf("a join while no gateway knows the draw: %+v, want a place in the queue", s)
	}
	l.pass(8, b)
	l.commits(second, b)
	for i, g := range all {
		if s := mustCheck(t, b, g.t); s.State > Admitted || s.Ticket.Order != second.Plan.Draw(second.OpensAt).Order(g.t.ID, b.Snapshot().Drawn) && s.State == Waiting {
			t.Errorf("visitor %d: %+v", i, s)
		}
	}
}
