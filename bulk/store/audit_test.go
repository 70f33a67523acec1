package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redisstore"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// wreck breaks one store by hand.
type wreck struct {
	t *testing.T
	s *Store
	c redisstore.Client
	g map[string]string // short names by id
}

func (w *wreck) do(command string, key int, rest ...any) {
	w.t.Helper()
	if err := w.c.Do(w.t.Context(), append([]any{command, w.s.keys[key]}, rest...)...).Err(); err != nil {
		w.t.Fatal(err)
	}
}

// set changes one number of a packed record.
func (w *wreck) set(key int, field string, place int, value any) {
	w.t.Helper()
	err := w.c.Eval(w.t.Context(), `
		local r = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1]))
		r[tonumber(ARGV[2])] = tonumber(ARGV[3]) or ARGV[3]
		return redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(r))`, []string{w.s.keys[key]}, field, place, value).Err()
	if err != nil {
		w.t.Fatal(err)
	}
}

// field returns the place of a field in a record of lua/lib/bulk.lua.
func field(t *testing.T, s *Store, record, name string) int {
	t.Helper()
	at := slices.Index(s.scripts.Script("jobs_ack").Records[record], name)
	if at < 0 {
		t.Fatalf("record %s has no field %s", record, name)
	}
	return at + 1
}

// TestAudit_ReportsEveryViolation breaks a store in every way that docs/bulk.md names, one after the other.
func TestAudit_ReportsEveryViolation(t *testing.T) {
	short.Skip(t, "makes many cases")
	for _, row := range []struct {
		name  string
		wreck func(w *wreck)
		want  string // the start of a violation: invariant and what
	}{
		{"a job in two places", func(w *wreck) { w.do("ZADD", keyFront, 0, w.g["run"]+"/wait") }, "one place: job 1/wait is in "},
		{"a pending job nowhere", func(w *wreck) { w.do("ZREM", keyLeases, w.g["run"]+"/fly") }, "one place: job 1/fly has not ended but is nowhere"},
		{"an ended job in a place", func(w *wreck) { w.do("ZADD", keyFront, 0, w.g["run"]+"/done") }, "one place: job 1/done has ended but is in front"},
		{"a pending job among the outcomes", func(w *wreck) { w.do("HSET", keyDone, w.g["run"]+":1", "fly\n") }, "one place: job 1/fly has not ended but is among the outcomes"},
		{"a job counted as non-ready", func(w *wreck) { w.do("ZADD", keyRefused, 0, "Nacme/1/fly") }, `one place: job 1/fly is counted as non-ready but is in "in-flight"`},
		{"a non-ready job not counted", func(w *wreck) { w.do("ZREM", keyRefused, "Nacme/1/wait") }, "counts: group run: non-ready: the record has 0, the data 1"},
		{"a job that got lost", func(w *wreck) { w.do("HDEL", keyJobs, w.g["run"]+"/fly") }, "counts: group run: not ended: the record has"},
		{"an outcome twice", func(w *wreck) { w.do("HSET", keyDone, w.g["run"]+":1", "done\n") }, "one outcome: job 1/done is in the log of outcomes more than once"},
		{"an outcome not logged", func(w *wreck) { w.do("HDEL", keyDone, w.g["run"]+":0") }, "one outcome: job 1/done has ended but is not in the log of outcomes"},
		{"an outcome lost", func(w *wreck) { w.do("HDEL", keyJobs, w.g["run"]+"/done") }, "counts: group run: ended: the record has 2, the data 1"},
		{"a group's pending", func(w *wreck) { w.flow("run", "taken", 1) }, "counts: group run: order: the record has"},
		{"a group's front", func(w *wreck) { w.flow("run", "front", 3) }, "counts: group run: front: the record has 3, the data 0"},
		{"a group's ready", func(w *wreck) { w.flow("run", "ready", 1) }, "counts: group run: ready: the record has 1, the data 0"},
		{"a group's in flight", func(w *wreck) { w.flow("run", "inflight", 7) }, "counts: group run: in-flight: the record has 7, the data 1"},
		{"a group's total", func(w *wreck) { w.flow("run", "total", 99) }, "counts: group run: total: the record has 99"},
		{"a group's successes", func(w *wreck) { w.flow("run", "succ", 5) }, "counts: group run: ended: the record has 6"},
		{"a group's dead", func(w *wreck) { w.flow("run", "dead", 2) }, "counts: group run: dead letters: the record has 2, the data 1"},
		{"a group's half chunks", func(w *wreck) { w.flow("open", "chunks_open", 0) }, "counts: group open: incomplete chunks: the record has 0, the data 1"},
		{"a swept group's cancelled", func(w *wreck) { w.flow("gone", "total", 9) }, "cancelled: group gone: cancelled is 9, 2 jobs are recorded as cancelled"},
		{"the shard's counts", func(w *wreck) { w.do("HINCRBY", keyState, "inflight", 1) }, "counts: shard: inflight: the record has 2, the data 1"},
		{"the shard's groups", func(w *wreck) { w.do("HINCRBY", keyState, "open_groups", 1) }, "counts: shard: open_groups: the record has"},
		{"a tenant's in flight", func(w *wreck) { w.tenant("acme", "inflight", 4) }, "counts: tenant acme: in-flight: the record has 4, the data 1"},
		{"a tenant's jobs", func(w *wreck) { w.tenant("acme", "open", 40) }, "counts: tenant acme: unfinished jobs: the record has 40"},
		{"a tenant's groups", func(w *wreck) { w.tenant("acme", "groups", 40) }, "counts: tenant acme: groups: the record has 40"},
		{"a tenant with jobs that is not busy", func(w *wreck) { w.do("ZREM", keyBusy, "acme") }, "tenant: tenant acme has"},
		{"a lease without a fence", func(w *wreck) { w.do("HDEL", keyRuns, w.g["run"]+"/fly") }, "lease: job 1/fly is in flight without a fence"},
		{"a lease of no group", func(w *wreck) { w.do("ZADD", keyLeases, 1, "zz/x") }, "owner: job zz/x in in-flight has no group"},
		{"a gated group without a wake time", func(w *wreck) { w.do("ZREM", keyGates, "g/"+w.g["busy"]) }, "gate: group busy: gated until"},
		{"a wake time of no gate", func(w *wreck) { w.do("ZADD", keyGates, 1, "g/"+w.g["run"]) }, "gate: group run: gated until 0, has a wake time: true"},
		{"a wake time of no group", func(w *wreck) { w.do("ZADD", keyGates, 1, "g/zz") }, "gate: a wake time of g/zz"},
		{"a gated tenant without a wake time", func(w *wreck) { w.do("ZREM", keyGates, "t/spent") }, "gate: tenant spent: gated until"},
		{"a group out of line", func(w *wreck) { w.del(keyLines, "2/beta/") }, "fair queue: group next: may start jobs: true, marked as queued: 1, in the fair queue: []"},
		{"a group in line twice", func(w *wreck) { w.do("ZADD", keyLines, 0, "2/beta/00000000000000000007/"+w.g["next"]) }, "fair queue: group next: may start jobs: true, marked as queued: 1, in the fair queue: [2/beta 2/beta]"},
		{"a group in line by another tag", func(w *wreck) { w.flow("next", "tag", 12345) }, "fair queue: group next is queued at 0000"},
		{"a group in line that may not start", func(w *wreck) { w.flow("next", "paused", 1) }, "fair queue: group next: may start jobs: false, marked as queued: 1"},
		{"a tenant without its turn", func(w *wreck) { w.do("ZREM", keyNormal, "2/beta") }, "fair queue: tenant 2/beta: must be queued: true"},
		{"a turn of no tenant", func(w *wreck) { w.do("ZADD", keyNormal, 1, "2/nobody") }, "owner: tenant 2/nobody is in the fair queue but has no record"},
		{"a group of another tenant", func(w *wreck) { w.flow("next", "tenant", "acme") }, `record: group next of tenant beta has the tenant "acme"`},
		{"a tag of no tenant", func(w *wreck) { w.do("ZADD", keyIdle, 1, "2/nobody") }, "owner: a tag of tenant 2/nobody"},
		{"history of no tenant", func(w *wreck) { w.do("ZADD", keyHistory, 0, "nobody/0000000000000001 0 0 0 0 0 0 0") }, "owner: history of tenant nobody"},
		{"a dead letter that is not kept", func(w *wreck) { w.do("ZREM", keyDead, w.g["run"]+"/dead") }, "dead letter: job 1/dead is dead and kept: true, is among the dead letters: false"},
		{"a dead letter of a live job", func(w *wreck) { w.do("ZADD", keyDead, 0, w.g["run"]+"/done") }, "dead letter: job 1/done is dead and kept: false"},
		{"a dead letter without a record", func(w *wreck) { w.do("ZADD", keyDead, 0, "zz/x") }, "dead letter: zz/x is among the dead letters but has no record"},
		{"an empty record", func(w *wreck) { w.do("HSET", keyJobs, w.g["run"]+"/done", "") }, `record: job "1/done": cannot read the record ""`},
		{"a pending record that does not read", func(w *wreck) { w.do("HSET", keyJobs, w.g["run"]+"/fly", "Px") }, `record: job "1/fly": cannot read the record "Px"`},
		{"runs that do not read", func(w *wreck) { w.do("HSET", keyRuns, w.g["run"]+"/fly", "7 x") }, `record: runs of job "1/fly": cannot read "7 x"`},
		{"runs of a job that does not run", func(w *wreck) { w.do("HSET", keyRuns, w.g["run"]+"/done", "7 0 0 0 0") }, "owner: runs of job 1/done"},
		{"a spec that got lost", func(w *wreck) { w.do("HDEL", keyGroups, w.g["run"]) }, "record: the spec of a group"},
		{"a name that got lost", func(w *wreck) { w.do("HDEL", keyNames_, "run") }, `owner: group run: its short name belongs to ""`},
		{"a group out of the index", func(w *wreck) { w.do("ZREM", keyIndex, w.g["run"]) }, "owner: group run: its short name belongs to \"run\", in the index: false"},
		{"a job of no group", func(w *wreck) { w.do("HSET", keyJobs, "zz/x", "P1 -\n1") }, "owner: job zz/x has no group"},
		{"a page of no group", func(w *wreck) { w.do("HSET", keyOrder, "zz:0", "x\n") }, "owner: page zz:0 of order has no group"},
		{"an empty page", func(w *wreck) { w.do("HSET", keyOrder, w.g["run"]+":99", "") }, "owner: page 1:99 of order is empty"},
		{"outcomes of no group", func(w *wreck) { w.do("HSET", keyDone, "zz:0", "x\n") }, "owner: page zz:0 of outcomes has no group"},
		{"a job set aside of no group", func(w *wreck) { w.do("ZADD", keyAside, 0, "jzz fax 1 x") }, "owner: job zz/x in aside has no group"},
		{"a job set aside and not listed", func(w *wreck) { w.do("ZADD", keyAside, 0, "j1 fax 1 done") }, "one place: jobs of type and group fax 1 are held back but not listed"},
		{"a type listed without a job", func(w *wreck) { w.do("ZADD", keyAside, 0, "tfax 1") }, "owner: type and group fax 1 are listed, but no such job"},
		{"the count of what is set aside", func(w *wreck) { w.do("HINCRBY", keyState, "aside", 1) }, "counts: shard: aside: the record has 1, the data 0"},
		{"a chunk of no group", func(w *wreck) { w.do("HSET", keyChunks, "zz:k", "=x") }, "owner: chunk of group zz"},
		{"a result of no group", func(w *wreck) { w.do("HSET", keySums, "zz", "!\n") }, "owner: result of group zz"},
		{"a key of nobody", func(w *wreck) {
			w.c.Set(w.t.Context(), strings.TrimSuffix(w.s.keys[keyState], "state")+"stray", 1, 0)
		}, "owner: key "},
		{"an ended group that nobody looks after", func(w *wreck) { w.do("ZREM", keyAgenda, w.g["gone"]) }, "retention: group gone is CANCELLED and has no housekeeping planned"},
		{"housekeeping that does not come", func(w *wreck) { w.do("ZADD", keyAgenda, begin-time.Hour.Microseconds(), w.g["gone"]) }, "retention: group gone: housekeeping is 1h"},
		{"what is past its retention", func(w *wreck) { w.flow("gone", "finished", begin-(25*time.Hour).Microseconds()) }, "retention: group gone ended at"},
		{"a group that does not come to its end", func(w *wreck) { w.flow("all", "status", 3) }, "life: group all is RUNNING although every job has ended"},
		{"an outcome that is not kept", func(w *wreck) { w.do("HSET", keyJobs, w.g["less"]+"/a", "S1 1 -1 -1 -\n1") }, "results: group less (results: failures) has 1 outcomes that it does not keep"},
		{"an outcome that is kept is gone", func(w *wreck) { w.flow("run", "gone", 1) }, `results: group run (results: "") has 2 outcomes, 1 of them deleted`},
		{"outcomes that do not go", func(w *wreck) {
			w.flow("less", "cleared", 0)
			w.flow("less", "finished", begin-time.Hour.Microseconds())
			w.do("HSET", keyJobs, w.g["less"]+"/a", "K\n")
		}, "results: group less (results: failures) has 1 outcomes that it does not keep"},
		{"outcomes reduced twice", func(w *wreck) { w.flow("run", "reduced", 9) }, "life: group run: 9 outcomes are reduced, but only 2 exist"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := wreckable(t)
			row.wreck(w)
			found, err := w.s.Audit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(found, func(v Violation) bool { return strings.HasPrefix(v.Invariant+": "+v.What, row.want) }) {
				t.Errorf("want %q, got %v", row.want, found)
			}
			w.s.auditPart = 2 // of more jobs than it looks at at once it finds the same
			if again, err := w.s.Audit(t.Context()); err != nil || !slices.Equal(again, found) {
				t.Errorf("in parts %v, %v; as a whole %v", again, err, found)
			}
		})
	}
}

func (w *wreck) flow(group, name string, value any) {
	w.t.Helper()
	w.set(keyFlow, w.g[group], field(w.t, w.s, "G", name), value)
}

func (w *wreck) tenant(name, what string, value any) {
	w.t.Helper()
	w.set(keyTenants, name, field(w.t, w.s, "T", what), value)
}

// del removes the members with that prefix from a sorted set.
func (w *wreck) del(key int, prefix string) { w.do("ZREMRANGEBYLEX", key, "["+prefix, "("+prefix+"~") }

// wreckable is a store with groups in each state, and nothing wrong with it.
func wreckable(t *testing.T) *wreck {
	client := redistest.Client(t)
	s, c := openOn(t, client, nil)
	w := &wreck{t: t, s: s, c: client, g: map[string]string{}}
	put := func(spec GroupSpec, names ...string) {
		create(t, s, spec)
		jobs := make([]Job, len(names))
		for i, n := range names {
			jobs[i] = Job{ID: n, Payload: []byte("1")}
		}
		if _, err := s.AddJobs(t.Context(), spec.ID, Chunk{}, jobs); err != nil {
			t.Fatal(err)
		}
	}
	one := func(v Verdict) { ack(t, s, v, pull(t, s, 1).Jobs...) }

	put(GroupSpec{ID: "run", Tenant: "acme"}, "done", "dead", "wait", "fly")
	one(Done)
	one(Buried)
	one(Retry)
	pull(t, s, 1)
	put(GroupSpec{ID: "busy", Tenant: "acme"}, "a", "b")
	one(Held)
	put(GroupSpec{ID: "gone", Tenant: "acme"}, "a", "b")
	if _, err := s.Cancel(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	put(GroupSpec{ID: "all", Tenant: "acme"}, "a")
	one(Done)
	if _, err := s.Seal(t.Context(), "all"); err != nil {
		t.Fatal(err)
	}
	put(GroupSpec{ID: "less", Tenant: "acme", Results: FailureResults}, "a")
	one(Done)
	if _, err := s.Seal(t.Context(), "less"); err != nil {
		t.Fatal(err)
	}
	reduce(t, s, "less")
	if _, err := s.SetTenant(t.Context(), Tenant{Name: "spent", Rate: 0.01}); err != nil {
		t.Fatal(err)
	}
	put(GroupSpec{ID: "slow", Tenant: "spent"}, "a", "b")
	one(Done)
	pull(t, s, 1)
	put(GroupSpec{ID: "open", Tenant: "acme", StartSealed: true}, "a")
	if _, err := s.AddJobs(t.Context(), "open", Chunk{Key: "k"}, nil); err != nil {
		t.Fatal(err)
	}
	put(GroupSpec{ID: "next", Tenant: "beta"}, "a", "b")
	for _, id := range []string{"run", "gone"} {
		if _, err := s.Tend(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	reduce(t, s, "gone")
	c.advance(time.Millisecond)
	clean(t, s)
	names, err := client.HGetAll(t.Context(), s.keys[keyNames_]).Result()
	if err != nil {
		t.Fatal(err)
	}
	w.g = names
	if w.g["run"] != "1" {
		t.Fatal(fmt.Sprint(names))
	}
	return w
}
