package store

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk/lend"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/lua"
)

// oneOfEverything does each thing that a bulk worker does with its store, and fails unless every script that this package
// calls has run, and none was refused.
func oneOfEverything(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	var ran sync.Map // by several goroutines, as shards are asked side by side
	set := Defaults()
	set.WaitReplicas = 0
	o := Options{
		Client: client, Prefix: "wr", Timeout: 5 * time.Second, Settings: set,
		Observe: func(script string, _ time.Duration, err error) {
			ran.Store(script, true)
			if err != nil {
				t.Errorf("%s: %v", script, err)
			}
		},
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, ok := t.Context(), func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(s.Ping(ctx))
	o.Shards = 2
	f, err := NewFleet(o, client)
	ok(err)
	ok(f.Prepare(ctx))
	number, err := f.shards[1].LendNumber(ctx)
	ok(err)
	_, _, err = f.shards[1].Lend(ctx, number, lend.Call{})
	ok(err)
	_, _, err = f.CreateGroup(ctx, GroupSpec{ID: "counted", Tenant: "quotas", Type: "t", MaxGroups: 5})
	ok(err)
	_, _, err = f.CreateGroup(ctx, GroupSpec{ID: "first", Tenant: "chains", Type: "t"})
	ok(err)
	end, _, err := f.shards[0].followedBy(ctx, "enter", "first", "0", follower{1, "second"})
	ok(err)
	_, err = f.shards[1].resume(ctx, 0, "first", end, []string{"second"})
	ok(err)
	_, _, err = f.shards[0].followedBy(ctx, "leave", "first", end.created, follower{1, "second"})
	ok(err)
	_, err = s.SetLimits(ctx, LimitsPatch{Global: new(500.0), GlobalGiven: true})
	ok(err)
	_, err = s.Steer(ctx, "0 0|0 0", 0, 0, "")
	ok(err)
	_, err = s.SetTenant(ctx, Tenant{Name: "acme", Weight: 2})
	ok(err)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", CallbackURL: "http://127.0.0.1:1/"})
	add(t, s, "g", 0, 4)
	_, err = s.Patch(ctx, "g", Patch{Weight: new(2.0)})
	ok(err)
	_, err = s.Seal(ctx, "g")
	ok(err)
	jobs := pull(t, s, 2).Jobs
	_, err = s.Renew(ctx, []Lease{{Key: jobs[0].Key, Fence: jobs[0].Fence}})
	ok(err)
	_, err = s.Types(ctx, []string{jobs[0].Key})
	ok(err)
	_, next, err := s.AckPull(ctx, []Ack{{Key: jobs[0].Key, Fence: jobs[0].Fence, Verdict: Done}}, 1)
	if ok(err); len(next.Jobs) != 1 {
		t.Fatalf("%d jobs pulled", len(next.Jobs))
	}
	ack(t, s, Done, jobs[1], next.Jobs[0])
	set.Gating = false
	ok(s.Configure(set))
	ack(t, s, Buried, pull(t, s, 1).Jobs...)
	_, err = s.Reclaim(ctx, nil)
	ok(err)
	dispatch(t, s)
	unlock, held, err := s.Lock(ctx, "g", time.Second)
	if ok(err); !held {
		t.Fatal("the group is locked")
	}
	_, err = s.Tend(ctx, "g")
	ok(err)
	reduce(t, s, "g")
	unlock()
	ok(s.CallbackDone(ctx, "g", true, false, 0))
	_, err = s.Redrive(ctx, "g", 0)
	ok(err)
	ok(s.Wait(ctx, time.Millisecond))
	ok(s.Snapshot(ctx))
	_, err = s.Offer(ctx, "g", "callback")
	ok(err)
	_, err = s.Keep(ctx, ProcessStatus{}, "callback")
	ok(err)
	ok(s.Unkeep(ctx))
	_, err = s.Depths(ctx)
	ok(err)
	_, err = s.Tenant(ctx, "acme")
	ok(err)
	_, _, err = s.Groups(ctx, Filter{Limit: 5})
	ok(err)
	_, err = s.Results(ctx, "g", "", 10)
	ok(err)
	_, err = s.Job(ctx, "g", "j000000")
	ok(err)
	_, err = s.Dead(ctx, "g", "", 10)
	ok(err)
	_, err = s.Congestion(ctx, "")
	ok(err)
	_, err = s.Repair(ctx)
	ok(err)
	_, err = s.Breakers(ctx)
	ok(err)
	create(t, s, GroupSpec{ID: "released", Tenant: "acme"})
	_, _, err = s.Release(ctx, "released")
	ok(err)
	add(t, s, "released", 0, 1)
	_, err = s.CancelJob(ctx, "released", "j000000")
	ok(err)
	_, err = s.RetryJob(ctx, "released", "j000000", 0)
	refused(t, err, CodeState)
	_, err = s.Delete(ctx, "released", time.Second)
	refused(t, err, CodeState)
	_, _, err = s.join(ctx, "released", 0, Completed, "", nil)
	ok(err)
	_, err = s.History(ctx, "acme", time.Time{})
	ok(err)
	_, err = s.Submit(ctx, Single{Tenant: "acme", Job: Job{Type: "webhook", Payload: []byte("1")}, Unique: Unique{"k", time.Hour}})
	ok(err)
	_, _, err = s.WriteSchedule(ctx, ScheduleRecord{ID: "nightly", Body: []byte("{}")}, time.Now())
	ok(err)
	_, _, err = s.DueSchedules(ctx)
	ok(err)
	_, err = s.Schedules(ctx)
	ok(err)
	_, _, err = s.SchedulesOf(ctx, "acme")
	ok(err)
	ok(s.IndexSchedules(ctx, func(ScheduleRecord) string { return "acme" }))
	_, err = s.Schedule(ctx, "nightly")
	ok(err)
	clean(t, s)
	for _, name := range lua.MustLoad().Names() {
		switch family, _, _ := strings.Cut(name, "_"); family {
		case "room", "permit", "origin", "webhooks", "series", "fleet", "audit": // admission's
		default:
			if _, did := ran.Load(name); !did {
				t.Errorf("%s did not run", name)
			}
		}
	}
}

// TestStore_WorksAsDocumentedUser calls every operation as the user of docs/store.md, with exactly these permissions, on a
// server and in a cluster of three masters, which refuses keys of another slot.
func TestStore_WorksAsDocumentedUser(t *testing.T) {
	const page = "../../docs/store.md"
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		server := redistest.Server(t)
		redistest.DocumentedUser(t, page, "anteroom", server)
		client, err := redisurl.Open("redis://anteroom:PASSWORD@"+server.Addr(), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		oneOfEverything(t, client)
		if err := client.Do(t.Context(), "WAIT", 0, 1).Err(); err != nil { // for durability replica
			t.Error(err)
		}
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.ThreeMasters(t, 0)
		redistest.DocumentedUser(t, page, "anteroom", c.Nodes...)
		client, err := redisurl.Open(strings.Replace(c.URL(), "://", "://anteroom:PASSWORD@", 1), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		oneOfEverything(t, client)
	})
}
