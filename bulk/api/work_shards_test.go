package api

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/remote"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// servers is a fleet over servers of its own, one for each shard, and the API over it, whose broker runs.
type servers struct {
	*bench
	fleet *store.Fleet
	all   []*redistest.PrivateServer
	group map[int]string // by shard
}

func newServers(t *testing.T, jobs int) *servers {
	t.Helper()
	s := &servers{group: map[int]string{}}
	var clients []redis.UniversalClient
	for range 3 {
		server := redistest.Server(t, "--save", "", "--appendonly", "yes", "--appendfsync", "always")
		s.all, clients = append(s.all, server), append(clients, server.Client())
	}
	var err error
	s.fleet, err = store.NewFleet(store.Options{Shards: 3, Prefix: "wr", Timeout: 2 * time.Second, Settings: store.Defaults(), Log: slog.New(slog.DiscardHandler)}, clients...)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.fleet.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	engine, err := bulk.New(bulk.Options{Store: s.fleet})
	if err != nil {
		t.Fatal(err)
	}
	broker, err := remote.New(remote.Options{Store: s.fleet, Engine: engine})
	if err != nil {
		t.Fatal(err)
	}
	s.bench = newBench(t, func(o *Options) { o.Store, o.Work = s.fleet, broker })
	s.broker = broker
	t.Cleanup(s.begin())
	for i := 0; len(s.group) < 3; i++ {
		id := fmt.Sprintf("g%d", i)
		s.create(`{"id":"` + id + `","tenant":"acme","type":"mail"}`)
		for n, shard := range s.fleet.Shards() {
			if _, err := shard.Group(t.Context(), id); err == nil && s.group[n] == "" {
				s.group[n] = id
			}
		}
	}
	for n, id := range s.group {
		var lines strings.Builder
		for i := range jobs {
			fmt.Fprintf(&lines, `{"id":"s%d-%d","payload":1}`+"\n", n, i)
		}
		want(t, s.ask("POST", "/v1/groups/"+id+"/jobs", lines.String()), 200)
	}
	return s
}

// until repeats ask until done reports true.
func (s *servers) until(what string, done func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 90*time.Second)
	defer cancel()
	for !done() {
		if ctx.Err() != nil {
			s.t.Fatalf("%s: not within 90 s", what)
		}
	}
}

// Workers over HTTP get the jobs of all shards. While one server is killed and another halts, pulls and verdicts of the third go on.
// Afterwards every job has ended once, and a lease from before is worth nothing where another run has begun.
func TestWork_OverShardsOneKilledOneFrozen(t *testing.T) {
	t.Parallel()
	const jobs = 40
	s := newServers(t, jobs)
	shardOf := func(lease string) int {
		h, err := remote.ParseHandle(lease)
		if err != nil {
			t.Fatal(err)
		}
		return h.Shard
	}
	held, seen := map[int]string{}, map[string]int{} // a lease of each shard; runs by job
	s.until("jobs of every shard", func() bool {
		for _, j := range s.lease(`{"worker":"w","types":["mail"],"max":3,"wait":1}`).Jobs {
			n := shardOf(j.Lease)
			if seen[j.ID]++; held[n] == "" {
				held[n] = j.Lease
				continue
			}
			if got := states(t, s.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+j.Lease+`"}]}`)); got != j.ID+" done" {
				t.Error(got)
			}
		}
		return len(held) == 3
	})

	s.all[0].Kill()
	s.all[1].Stop()
	// Verdicts and leases of the shard that is left, and of those that are away.
	got := states(t, s.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+held[0]+`"},{"lease":"`+held[1]+`"},{"lease":"`+held[2]+`"}]}`))
	if !strings.Contains(got, " away, ") || strings.Count(got, " away") != 2 || !strings.HasSuffix(got, " done") {
		t.Errorf("the verdicts: %s", got)
	}
	wantCode(t, s.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+held[0]+`"}]}`), 503, "store_unavailable", "shard 0")
	wantCode(t, s.ask("POST", "/v1/work/extend", `{"leases":["`+held[0]+`","`+held[2]+`"]}`), 503, "store_unavailable")
	s.until("the jobs of the shard that is left", func() bool {
		for _, j := range s.lease(`{"worker":"w","types":["mail"],"max":5,"wait":1}`).Jobs {
			seen[j.ID]++
			if n := shardOf(j.Lease); n != 2 {
				t.Errorf("a job of shard %d", n)
			}
			states(t, s.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+j.Lease+`"}]}`))
		}
		g, err := s.fleet.Shards()[2].Group(t.Context(), s.group[2])
		return err == nil && g.Succeeded == jobs
	})

	s.all[0].Restart()
	s.all[1].Cont()
	var again []string
	s.until("all jobs", func() bool {
		for _, j := range s.lease(`{"worker":"w","types":["mail"],"max":7,"wait":1}`).Jobs {
			seen[j.ID]++
			if w := s.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+j.Lease+`"}]}`); w.Code == 200 {
				again = append(again, states(t, w))
			}
		}
		ended := int64(0)
		for n, id := range s.group {
			// A pull that the halted server began before may have leased jobs after those of lost pulls were returned.
			if _, err := s.fleet.Shards()[n].Dispatch(t.Context()); err != nil {
				t.Log(err)
			}
			g, err := s.fleet.Shards()[n].Group(t.Context(), id)
			if err == nil {
				ended += g.Succeeded
			}
		}
		// The held jobs of the shards that were away end by these verdicts; the halted server may have recorded one already.
		if ended >= 3*jobs-2 {
			for n := range 2 {
				states(t, s.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+held[n]+`"}]}`))
			}
		}
		return ended == 3*jobs
	})
	if got := states(t, s.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+held[0]+`"},{"lease":"`+held[1]+`"},{"lease":"`+held[2]+`"}]}`)); strings.Count(got, " stale") != 3 {
		t.Errorf("leases of runs that have ended: %s", got)
	}
	if slices.ContainsFunc(again, func(s string) bool { return strings.Contains(s, "away") }) {
		t.Errorf("away with all servers back: %v", again)
	}
	if len(seen) != 3*jobs {
		t.Errorf("%d jobs of %d were leased", len(seen), 3*jobs)
	}
	if found, err := s.fleet.Audit(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("audit: %v, %v", found, err)
	}
}

// A lease of a shard that the installation does not have is worth as little as one that another run has replaced, and the verdicts
// beside it count. If the shard was added since this process started, the lease has to wait for the restart.
func TestWork_LeaseOfAShardThatDoesNotExist(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	b := newBenchWith(t, store.Options{Client: redistest.Client(t), Prefix: prefix, Settings: store.Defaults()})
	b.submit("g", 4)
	elsewhere := func(lease string) string {
		h, err := remote.ParseHandle(lease)
		if err != nil {
			t.Fatal(err)
		}
		h.Shard = 1
		return h.String()
	}
	v := b.lease(`{"types":["mail"],"max":4}`)
	if got := states(t, b.ask("POST", "/v1/work/extend", `{"leases":["`+elsewhere(v.Jobs[0].Lease)+`","`+v.Jobs[1].Lease+`"]}`)); got != "j0 lost, j1 held" {
		t.Error(got)
	}
	if got := states(t, b.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+elsewhere(v.Jobs[0].Lease)+`"},{"lease":"`+v.Jobs[1].Lease+`"}]}`)); got != "j0 stale, j1 done" {
		t.Error(got)
	}
	if got := states(t, b.ask("POST", "/v1/work/fail", `{"jobs":[{"lease":"`+elsewhere(v.Jobs[0].Lease)+`"}]}`)); got != "j0 stale" {
		t.Error(got)
	}
	f, err := store.NewFleet(store.Options{Shards: 2, Prefix: prefix, Timeout: 10 * time.Second, Settings: store.Defaults(), Log: slog.New(slog.DiscardHandler)}, redistest.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.OpenShard(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got := states(t, b.ask("POST", "/v1/work/ack", `{"jobs":[{"lease":"`+elsewhere(v.Jobs[0].Lease)+`"},{"lease":"`+v.Jobs[2].Lease+`"}]}`)); got != "j0 away, j2 done" {
		t.Error(got)
	}
	wantCode(t, b.ask("POST", "/v1/work/extend", `{"leases":["`+elsewhere(v.Jobs[0].Lease)+`"]}`), 503, "store_unavailable")
}
