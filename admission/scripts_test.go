package admission_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/outbox"
	"github.com/anteroom/anteroom/admission/ramp"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/lua"
)

// oneOfEverything does each thing that a gateway does with the rooms of these names, and fails unless every script that
// this package calls has run, and none was refused.
func oneOfEverything(t *testing.T, client redis.UniversalClient, rooms ...string) {
	t.Helper()
	ran := map[string]bool{}
	gateway := func() *Core {
		core, err := New(Options{
			Client: client, Timeout: patience, Log: slog.New(slog.DiscardHandler),
			Observe: func(script string, _ time.Duration, err error) {
				ran[script] = true
				if err != nil {
					t.Errorf("%s: %v", script, err)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return core
	}
	core, peer := gateway(), gateway()
	ctx, ok := t.Context(), func(err error) {
		t.Helper()
		if err != nil && !errors.Is(err, ErrNotYet) {
			t.Fatal(err)
		}
	}
	p := steady
	p.Rate, p.Burst = 1, 1_000
	for i, name := range rooms {
		r := core.Room(name, p)
		ok(r.Tick(ctx))
		var all []Standing
		for n := range 3 {
			s, refusal, err := r.Join(ctx, Arrival{ID: ID{byte(i), byte(n)}, Client: Client{byte(n)}})
			if err != nil || refusal != Granted {
				t.Fatal(err, refusal)
			}
			s.Ticket.ID, s.Ticket.Client = ID{byte(i), byte(n)}, Client{byte(n)}
			all = append(all, s)
		}
		if all[0].State != Active || all[2].State != Waiting {
			t.Fatalf("joined as %+v", all)
		}
		r.Touch(all[0].Ticket.ID, true)
		ok(r.Tick(ctx))
		ok(peer.Room(name, p).Tick(ctx))
		_, err := peer.Room(name, p).Check(ctx, all[1].Ticket) // which has not answered about it a moment ago
		ok(err)
		_, err = r.Claim(ctx, all[1].Ticket)
		ok(err)
		_, err = r.Lookup(ctx, all[1].Ticket.ID)
		ok(err)
		ok(r.Leave(ctx, all[2].Ticket))
		ok(r.Pause(ctx, "ann"))
		ok(r.RevokeSession(ctx, "ann", all[0].Ticket.ID))
		ok(r.RemoveTicket(ctx, "ann", all[1].Ticket.ID))
		ok(r.Reset(ctx, "ann"))
		ok(r.Evacuate(ctx, "ann", "a test"))
		_, err = r.StartRamp(ctx, "ann", ramp.Spec{From: 1_000, Step: 1_000, Every: time.Minute, Until: 5_000})
		ok(err)
		ok(r.Ask(ctx, &Approval{Action: "reset", By: "ann", Person: "token:ann"}))
		_, err = r.SessionEnds(ctx, []ID{all[0].Ticket.ID}, 1, time.Hour)
		ok(err)
		_, err = r.History(ctx, 5)
		ok(err)
		core.Origin(name).Add(time.Millisecond, false)
		ok(core.PublishHealth(ctx))
		ok(core.ReportJobs(ctx, name))
		adaptive := p
		adaptive.Strategy, adaptive.Origin, adaptive.MinRate, adaptive.MaxRate = StrategyAdaptive, name, 1, 2
		ok(core.Room(name, adaptive).Steer(ctx))
		shared := p
		shared.Budgeted, shared.Budget = true, Budget{Origin: name, Rate: 1000, Burst: 1000, Weight: 1000, Weights: 1000}
		ok(core.Room(name, shared).Tick(ctx))
	}
	fleet := NewFleet(core, func() Gateway { return Gateway{Version: "v1"} })
	ok(fleet.Report(ctx))
	ok(NewRecorder(core, fleet, func(_ string, m *Measures) { m.Counts = map[string]int64{"arrived": 1} }).Record(ctx))
	entries, err := core.Audit(ctx, 100, nil)
	if ok(err); len(entries) < 4*len(rooms) {
		t.Errorf("%d entries of the audit log", len(entries))
	}
	watch := NewAuditWatch(core, slog.New(slog.DiscardHandler))
	ok(watch.Look(ctx))
	for _, name := range rooms { // which the store has lost
		ok(client.Do(ctx, "LTRIM", "wr:{room:"+name+"}:audit", 1, 0).Err())
	}
	ok(watch.Look(ctx))
	events := outbox.New(outbox.Options{Run: ScriptsOf(core), Prefix: "wr"})
	for _, verdict := range []outbox.Verdict{outbox.Retry, outbox.Dead} {
		_, err = events.Note(ctx, []outbox.Change{{Field: "queue sale", Value: string(verdict), ID: "m", Body: "{}", Endpoints: []string{"hook"}}})
		ok(err)
		_, err = events.Take(ctx, "gateway", 1, []string{"queue sale"})
		ok(err)
		ok(events.Settle(ctx, outbox.Outcome{Endpoint: "hook", ID: "m", Verdict: verdict}))
	}
	_, err = events.Read(ctx, 1)
	ok(err)
	for _, name := range lua.MustLoad().Names() {
		family, _, _ := strings.Cut(name, "_")
		switch family {
		case "room", "origin", "layout", "webhooks", "series", "fleet", "audit":
			if !ran[name] {
				t.Errorf("%s did not run", name)
			}
		}
	}
}

// All scripts run for rooms on each of three masters, where keys of another slot are refused: by the node if the slot is on
// another node, and by Redis itself for scripts with #!lua.
func TestScripts_KeepToOneSlot(t *testing.T) {
	t.Parallel()
	c := redistest.ThreeMasters(t, 0)
	masters := map[*redistest.PrivateServer]bool{}
	var rooms []string
	for i := 0; len(masters) < 3; i++ {
		id := fmt.Sprintf("room-%d", i)
		if m := c.Master(ofRoom(id)); !masters[m] {
			masters[m] = true
			rooms = append(rooms, id)
		}
	}
	// Errors that redirect are not for scripts to meet in a cluster that stands still.
	client, err := redisurl.Open(c.URL(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	oneOfEverything(t, client, rooms...)
}

const storePage = "../docs/store.md"

// A user with exactly the rights in docs/store.md can run everything: on a server, and in a cluster where the room moves
// meanwhile.
func TestStoreUser_DocumentedRightsSuffice(t *testing.T) {
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		server := redistest.Server(t)
		redistest.DocumentedUser(t, storePage, "anteroom", server)
		client, err := redisurl.Open("redis://anteroom:PASSWORD@"+server.Addr()+"/1", 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		if err := redisurl.CheckServer(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		oneOfEverything(t, client, "sale")
		for _, forbidden := range [][]any{{"GET", "other"}, {"FLUSHALL"}, {"KEYS", "*"}, {"CONFIG", "GET", "*"}, {"SCRIPT", "FLUSH"}, {"PUBLISH", "c", "m"}} {
			if err := client.Do(t.Context(), forbidden...).Err(); !redis.HasErrorPrefix(err, "NOPERM") {
				t.Errorf("%v: %v", forbidden, err)
			}
		}
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.ThreeMasters(t, 0)
		redistest.DocumentedUser(t, storePage, "anteroom", c.Nodes...)
		client, err := redisurl.Open(strings.Replace(c.URL(), "://", "://anteroom:PASSWORD@", 1), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		oneOfEverything(t, client, "sale", "other")
		key := ofRoom("sale")
		m := c.Move(key, another(c, key))
		m.Step(1 << 10)
		if err := client.Get(t.Context(), key+"-none").Err(); !errors.Is(err, redis.Nil) { // by ASK
			t.Errorf("half-way: %v", err)
		}
		m.Finish()
		oneOfEverything(t, client, "third")
	})
}
