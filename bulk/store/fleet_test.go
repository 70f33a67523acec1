package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk/lend"
	"github.com/anteroom/anteroom/internal/redistest"
)

// A group is looked for where any earlier placement put it, and a shard more changes only homes that become its own.
func TestPlacements_KeepEveryHome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[a-z]{1,8}(-r[1-9]){0,3}`).Draw(t, "id")
		all := placements{{0, []int{0}}}
		homes := []int{all.homes(id, 0)[0]}
		for i := range rapid.IntRange(1, 6).Draw(t, "changes") {
			last := all[len(all)-1].shards
			next := rapid.SliceOfNDistinct(rapid.IntRange(0, 7), 1, 8, rapid.ID[int]).Draw(t, "shards")
			if rapid.Bool().Draw(t, "grow") {
				next = append(slices.Clone(last), 8+i)
			}
			slices.Sort(next)
			all = append(all, placement{int64(i+1) * 10, next})
			now := int64(i+1) * 10
			if before := all.homes(id, now-1)[0]; before != homes[len(homes)-1] {
				t.Fatalf("a placement counts before its time: home %d, want %d", before, homes[len(homes)-1])
			}
			home := all.homes(id, now)[0]
			if len(next) == len(last)+1 && next[len(next)-1] == 8+i && home != homes[len(homes)-1] && home != 8+i {
				t.Fatalf("shard %d was added, and the home went from %d to %d", 8+i, homes[len(homes)-1], home)
			}
			homes = append(homes, home)
		}
		for _, was := range homes {
			if found := all.homes(id, 1e6); !slices.Contains(found, was) {
				t.Fatalf("%s was created on shard %d and is looked for in %v", id, was, found)
			}
		}
		if redrive := all.homes(id+"-r7", 1e6); !slices.Equal(redrive, all.homes(id, 1e6)) {
			t.Fatalf("a redrive of %s is looked for in %v", id, redrive)
		}
		text := ""
		for _, p := range all {
			text += fmt.Sprintf(";%d %s", p.from, shardWords(p.shards))
		}
		if again, err := parsePlacements(text[1:]); err != nil || fmt.Sprint(again) != fmt.Sprint(all) {
			t.Fatalf("%v, %v", again, err)
		}
	})
}

// The homes of ids are spread, and stay what they are: data would not be found otherwise.
func TestPlacements_SpreadIDs(t *testing.T) {
	p := placements{{0, []int{0, 1, 2, 3}}}
	counts := map[int]int{}
	for i := range 4000 {
		counts[p.homes(fmt.Sprintf("import-%d", i), 0)[0]]++
	}
	for n := range 4 {
		if counts[n] < 850 || counts[n] > 1150 {
			t.Errorf("shard %d has %d of 4000 groups", n, counts[n])
		}
	}
	if got := fmt.Sprint(p.homes("spring-sale", 0), p.homes("g", 0), p.homes("2026-11-26.invoices", 0)); got != fixedHomes {
		t.Errorf("homes %s, and once they were %s", got, fixedHomes)
	}
}

const fixedHomes = "[0] [1] [3]"

// fleet opens n shards on clients, with one prefix for each test.
func fleet(t testing.TB, n int, prefix string, change func(*Settings), clients ...redis.UniversalClient) *Fleet {
	t.Helper()
	set := Defaults()
	if change != nil {
		change(&set)
	}
	f, err := NewFleet(Options{Shards: n, Prefix: prefix, Timeout: 10 * time.Second, Settings: set, Log: slog.New(slog.DiscardHandler)}, clients...)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// fill creates groups of a tenant on all shards and adds jobs to each.
func fill(t testing.TB, f *Fleet, tenant string, groups, jobs int) (ids []string) {
	t.Helper()
	for i := range groups {
		spec := GroupSpec{ID: fmt.Sprintf("%s-%03d", tenant, i), Tenant: tenant, Type: "t"}
		if _, created, err := f.CreateGroup(t.Context(), spec); err != nil || !created {
			t.Fatal(created, err)
		}
		list := make([]Job, jobs)
		for j := range list {
			list[j] = Job{ID: fmt.Sprintf("j%d", j), Payload: []byte("1")}
		}
		if _, err := f.AddJobs(t.Context(), spec.ID, Chunk{}, list); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, spec.ID)
	}
	return ids
}

func TestFleet_ListsAndCountsAllShards(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	ids := fill(t, f, "acme", 20, 2)
	for n, s := range f.shards {
		if d, err := s.Depths(t.Context()); err != nil || d.Pending == 0 {
			t.Errorf("shard %d has no jobs: %v", n, err)
		}
	}
	for _, limit := range []int{1, 3, 7, 100} {
		var listed []string
		for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
			groups, next, away, err := f.Groups(t.Context(), Filter{Limit: limit, Cursor: cursor})
			if err != nil || away != nil || len(groups) > limit {
				t.Fatal(groups, away, err)
			}
			for _, g := range groups {
				listed = append(listed, g.ID)
			}
			cursor = next
		}
		slices.Reverse(listed)
		if !slices.Equal(listed, ids) {
			t.Errorf("pages of %d: %v", limit, listed)
		}
	}
	_, _, _, err := f.Groups(t.Context(), Filter{Limit: 1, Cursor: "7.AAAA"})
	refused(t, err, CodeInvalid)
	if c, _, err := f.Congestion(t.Context(), ""); err != nil || len(c) != 1 || c[0].Pending != 40 {
		t.Errorf("congestion: %+v, %v", c, err)
	}
	if tenant, _, err := f.Tenant(t.Context(), "acme"); err != nil || tenant.Groups != 20 {
		t.Errorf("tenant: %+v, %v", tenant, err)
	}
	_, _, err = f.Tenant(t.Context(), "nobody")
	refused(t, err, CodeNotFound)
	_, err = f.Group(t.Context(), "nothing")
	refused(t, err, CodeNotFound)

	// A redrive is on the shard of its source and is found by its id, and so is that of a redrive.
	id := ids[0]
	for range 2 {
		if _, err := f.Seal(t.Context(), id); err != nil {
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				t.Fatal(err)
			}
		}
		s, err := f.shardOf(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for g, err := f.Group(t.Context(), id); g.Dead < 2; g, err = f.Group(t.Context(), id) {
			if err != nil {
				t.Fatal(err)
			}
			ack(t, s, Buried, pull(t, s, 10).Jobs...)
		}
		g, err := f.RedriveJobs(t.Context(), id, RedriveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := f.Group(t.Context(), g.ID); err != nil || again.Total != 2 {
			t.Fatalf("redrive %s: %+v, %v", g.ID, again, err)
		}
		id = g.ID
	}
	if found, err := f.Audit(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("audit: %v, %v", found, err)
	}
}

// A quota counts what the tenant has in all shards.
func TestFleet_HoldsQuotas(t *testing.T) {
	f := fleet(t, 4, redistest.Prefix(t), func(s *Settings) { s.PendingPerTenant = 10 }, redistest.Client(t))
	fill(t, f, "acme", 5, 2)
	group := GroupSpec{ID: "more", Tenant: "acme", Type: "t", MaxGroups: 6}
	for range 2 { // the second time it exists, which the quota does not forbid
		if _, _, err := f.CreateGroup(t.Context(), group); err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.AddJobs(t.Context(), "more", Chunk{}, []Job{{ID: "j", Payload: []byte("1")}})
	refused(t, err, CodeQuota)
	group.ID = "most"
	_, _, err = f.CreateGroup(t.Context(), group)
	refused(t, err, CodeQuota)
}

func TestFleet_OpensAndDrainsShards(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	two := fleet(t, 2, prefix, nil, client)
	ids := fill(t, two, "acme", 6, 1)
	if _, err := two.SetTenant(t.Context(), Tenant{Name: "acme", Weight: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := two.SetLimits(t.Context(), LimitsPatch{GlobalGiven: true, Global: new(77.0)}); err != nil {
		t.Fatal(err)
	}
	one, err := NewFleet(Options{Prefix: prefix, Timeout: 10 * time.Second, Settings: Defaults()}, client)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Prepare(t.Context()); !errors.Is(err, ErrShards) || !strings.Contains(err.Error(), "set shards: 2 (not 1)") {
		t.Errorf("one shard of two: %v", err)
	}
	three := fleet(t, 3, prefix, nil, client)
	if got := fmt.Sprint(three.Unused()); got != "[2]" {
		t.Errorf("unused: %s", got)
	}
	old := ProcessStatus{Host: "h", Shards: 2}
	if _, err := two.shards[0].Keep(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	_, err = three.OpenShard(t.Context(), 2)
	refused(t, err, CodeState)
	if err := two.shards[0].Unkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		if changed, err := three.OpenShard(t.Context(), 2); err != nil || changed != want {
			t.Fatal(i, changed, err)
		}
	}
	if changed, err := three.DrainShard(t.Context(), 0); err != nil || !changed {
		t.Fatal(changed, err)
	}
	later := three.placing.last.Load()
	later.now += 2 * placeAfter.Microseconds() // the placements count by now
	more := fill(t, three, "late", 12, 1)
	use := map[int]int{}
	for _, id := range append(ids, more...) {
		if _, err := three.Group(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range more {
		s, err := three.shardOf(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		use[s.o.Shard]++
	}
	if use[0] > 0 || use[1] == 0 || use[2] == 0 {
		t.Errorf("new groups by shard: %v; shard 0 is drained", use)
	}
	if tenant, err := three.shards[2].Tenant(t.Context(), "acme"); err != nil || tenant.Weight != 3 {
		t.Errorf("the new shard has tenant %+v, %v", tenant, err)
	}
	if l, err := three.shards[2].Limits(t.Context()); err != nil || l.Global != 77 {
		t.Errorf("the new shard has limits %+v, %v", l, err)
	}
	list, err := three.ShardList(t.Context())
	if err != nil || list[0].Use != UseDraining || list[1].Use != UseOpen || list[2].Use != UseOpen || list[0].Groups == 0 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, n := range []int{1, 2} {
		_, err = three.DrainShard(t.Context(), n)
	}
	refused(t, err, CodeState) // the last one
	if found, err := three.Audit(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("audit: %v, %v", found, err)
	}
}

// An installation of one shard grows; limits that its tenants had hold over all shards.
func TestFleet_AdoptsAnInstallationOfOneShard(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	one := fleet(t, 1, prefix, nil, client)
	ids := fill(t, one, "acme", 4, 1)
	if _, err := one.SetTenant(t.Context(), Tenant{Name: "acme", Concurrency: 2, Rate: 9}); err != nil {
		t.Fatal(err)
	}
	two := fleet(t, 2, prefix, nil, client)
	for _, id := range ids {
		if _, err := two.Group(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	for n, s := range two.shards {
		number, err := s.LendNumber(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r, _, err := s.Lend(t.Context(), number, lend.Call{}); err != nil || r.Shares["@acme"].Whole != (lend.Limit{Rate: 9000, Burst: 1000, Concurrency: 2}) {
			t.Errorf("shard %d: %+v, %v", n, r.Shares["@acme"], err)
		}
	}
	if changed, err := two.OpenShard(t.Context(), 1); err != nil || !changed {
		t.Error(changed, err)
	}
}

// Servers in another order would be searched for groups that they do not have.
func TestFleet_RefusesReorderedServers(t *testing.T) {
	a, b := redistest.Server(t), redistest.Server(t)
	fill(t, fleet(t, 2, "wr", nil, a.Client(), b.Client()), "acme", 4, 1)
	f, err := NewFleet(Options{Shards: 2, Prefix: "wr", Timeout: 10 * time.Second, Settings: Defaults()}, b.Client(), a.Client())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Prepare(t.Context()); !errors.Is(err, ErrShards) || !strings.Contains(err.Error(), "restore the former order") {
		t.Errorf("%v", err)
	}
}

// A start or an audit with a wrong list of servers is refused and leaves no mark, so that the right list works afterwards.
func TestFleet_WrongServersStayUnmarked(t *testing.T) {
	a, b, c := redistest.Server(t), redistest.Server(t), redistest.Server(t)
	ids := fill(t, fleet(t, 3, "wr", nil, a.Client(), b.Client(), c.Client()), "acme", 9, 1)
	open := func(shards int, servers ...*redistest.PrivateServer) *Fleet {
		t.Helper()
		var clients []redis.UniversalClient
		for _, s := range servers {
			clients = append(clients, s.Client())
		}
		f, err := NewFleet(Options{Shards: shards, Prefix: "wr", Timeout: 10 * time.Second, Settings: Defaults(), Log: slog.New(slog.DiscardHandler)}, clients...)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, row := range []struct {
		name    string
		shards  int
		servers []*redistest.PrivateServer
		want    string
	}{
		{"reordered", 3, []*redistest.PrivateServer{b, a, c}, "store.urls[0] has the data of shard 1"},
		{"one of three", 3, []*redistest.PrivateServer{a}, "store.url has shard 0 of an installation with 3 shards, but nothing of shard 1"},
		{"two of three", 4, []*redistest.PrivateServer{a, b}, "store.urls[0] has shard 0 of an installation with 3 shards, but nothing of shard 2"},
		{"another one alone", 1, []*redistest.PrivateServer{b}, "store.url has the data of shard 1"},
		{"another one for all", 3, []*redistest.PrivateServer{b}, "store.url has the data of shard 1, but nothing of shard 0"},
		{"another one first", 4, []*redistest.PrivateServer{c, b}, "store.urls[0] has the data of shard 2, but nothing of shard 0"},
	} {
		f := open(row.shards, row.servers...)
		for n, s := range f.shards { // what the loops of a process do beside Prepare
			if _, err := s.Depths(t.Context()); n == 0 && !errors.Is(err, ErrShards) {
				t.Errorf("%s: shard 0: %v", row.name, err)
			}
		}
		if _, err := f.Audit(t.Context()); !errors.Is(err, ErrShards) {
			t.Errorf("%s: audit: %v", row.name, err)
		}
		if err := f.Prepare(t.Context()); !errors.Is(err, ErrShards) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
		right := open(3, a, b, c)
		if err := right.Prepare(t.Context()); err != nil {
			t.Fatalf("after %s: %v", row.name, err)
		}
		for _, id := range ids {
			if _, err := right.Group(t.Context(), id); err != nil {
				t.Errorf("after %s: %v", row.name, err)
			}
		}
	}
}

// A process that was killed while it marked the shards of a new installation, a server that lost its data, or marks of shards that were
// configured once and never opened, prevent no start.
func TestFleet_PreparesPartOfAnInstallation(t *testing.T) {
	a, b := redistest.Server(t), redistest.Server(t)
	half, err := NewFleet(Options{Shards: 4, Prefix: "wr", Timeout: 10 * time.Second, Settings: Defaults()}, a.Client(), b.Client())
	if err != nil {
		t.Fatal(err)
	}
	if err := half.shards[2].Prepare(t.Context()); err != nil { // on the server of shard 0, before that
		t.Fatal(err)
	}
	fleet(t, 4, "wr", nil, a.Client(), b.Client())
	if n := a.Client().Exists(t.Context(), layoutKey("wr", 0), layoutKey("wr", 2)).Val(); n != 2 {
		t.Errorf("%d of the marks of shards 0 and 2", n)
	}
	for _, server := range []*redistest.PrivateServer{a, b} {
		if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		fleet(t, 4, "wr", nil, a.Client(), b.Client())
	}
	c := redistest.Server(t)
	for _, shards := range []int{1, 4, 2, 1} {
		fleet(t, shards, "wr", nil, c.Client())
	}
	if c.Client().Exists(t.Context(), layoutKey("wr", 3)).Val() != 1 {
		t.Error("no mark of a shard that is not configured any more")
	}
}

// slowly delays each round trip of a client.
type slowly time.Duration

func (slowly) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d slowly) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		<-time.After(time.Duration(d))
		return next(ctx, c)
	}
}

func (d slowly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, c []redis.Cmder) error {
		<-time.After(time.Duration(d))
		return next(ctx, c)
	}
}

// Servers at a distance are checked too: the check has one round trip for all shards, within one store.timeout.
func TestFleet_ChecksDistantServers(t *testing.T) {
	a, b := redistest.Server(t), redistest.Server(t)
	if err := b.Client().HSet(t.Context(), layoutKey("wr", MaxShards-1), "version", layout).Err(); err != nil {
		t.Fatal(err)
	}
	distant := b.Client()
	distant.AddHook(slowly(20 * time.Millisecond))
	f, err := NewFleet(Options{Shards: 2, Prefix: "wr", Timeout: time.Second, Settings: Defaults()}, a.Client(), distant)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Prepare(t.Context()); !errors.Is(err, ErrShards) || !strings.Contains(err.Error(), fmt.Sprintf("store.urls[1] has the data of shard %d", MaxShards-1)) {
		t.Errorf("%v", err)
	}
}

// A shard that is away counts for a quota with what any process has added to it, and the other shards accept the rest.
func TestFleet_HoldsQuotasBesideAShardThatIsAway(t *testing.T) {
	servers := []*redistest.PrivateServer{redistest.Server(t), redistest.Server(t), redistest.Server(t)}
	open := func() *Fleet {
		return fleet(t, 3, "wr", func(s *Settings) { s.PendingPerTenant = 10 }, servers[0].Client(), servers[1].Client(), servers[2].Client())
	}
	one, two, three := open(), open(), open()
	home, err := one.FixedHome(t.Context(), "tenant/acme")
	if err != nil {
		t.Fatal(err)
	}
	lost, other := (home.o.Shard+1)%3, (home.o.Shard+2)%3
	add := func(f *Fleet, shard, from, n int) error {
		id := onShard(f, shard)
		if _, _, err := f.CreateGroup(t.Context(), GroupSpec{ID: id, Tenant: "acme", Type: "t", MaxGroups: 3}); err != nil {
			return err
		}
		jobs := make([]Job, n)
		for i := range jobs {
			jobs[i] = Job{ID: fmt.Sprint("j", from+i), Payload: []byte("1")}
		}
		_, err := f.AddJobs(t.Context(), id, Chunk{}, jobs)
		return err
	}
	if err := add(two, other, 0, 1); err != nil { // two reads that the shard has nothing
		t.Fatal(err)
	}
	if err := add(one, lost, 0, 6); err != nil {
		t.Fatal(err)
	}
	servers[lost].Kill()
	for _, f := range []*Fleet{two, three} { // the latter has never read the shard
		refused(t, add(f, other, 100, 4), CodeQuota)
	}
	if err := add(three, other, 200, 3); err != nil {
		t.Errorf("the rest of the quota is refused: %v", err)
	}
	refused(t, add(two, other, 300, 1), CodeQuota)
	third := GroupSpec{ID: onShard(two, home.o.Shard), Tenant: "acme", Type: "t", MaxGroups: 2}
	_, _, err = two.CreateGroup(t.Context(), third)
	refused(t, err, CodeQuota)
	third.MaxGroups = 3
	if _, _, err = two.CreateGroup(t.Context(), third); err != nil {
		t.Error(err)
	}
	_, err = two.AddJobs(t.Context(), onShard(two, lost), Chunk{}, []Job{{ID: "x", Payload: []byte("1")}})
	if !errors.Is(err, ErrStore) {
		t.Errorf("the shard that is away: %v", err)
	}
}

// While a shard is away the others answer, and say so.
func TestFleet_AnswersWithoutOneShard(t *testing.T) {
	servers := []*redistest.PrivateServer{redistest.Server(t), redistest.Server(t), redistest.Server(t)}
	f := fleet(t, 3, "wr", nil, servers[0].Client(), servers[1].Client(), servers[2].Client())
	ids := fill(t, f, "acme", 9, 1)
	servers[1].Kill()
	groups, _, away, err := f.Groups(t.Context(), Filter{Limit: 100})
	if err != nil || fmt.Sprint(away) != "[1]" || len(groups) == 0 || len(groups) == 9 {
		t.Errorf("%d groups, away %v, %v", len(groups), away, err)
	}
	lost := 0
	for _, id := range ids {
		_, err := f.Group(t.Context(), id)
		switch {
		case err == nil:
		case errors.Is(err, ErrStore) && strings.Contains(err.Error(), "shard 1"):
			lost++
		default:
			t.Errorf("%s: %v", id, err)
		}
	}
	if lost != 9-len(groups) {
		t.Errorf("%d groups do not reply, %d are listed", lost, len(groups))
	}
	if _, err := f.SetTenant(t.Context(), Tenant{Name: "acme", Weight: 2}); err == nil || !strings.Contains(err.Error(), "repeat it when this one is back: shard 1") {
		t.Errorf("%v", err)
	}
	servers[0].Kill() // the placements are known
	if _, _, err := f.CreateGroup(t.Context(), GroupSpec{ID: onShard(f, 2), Tenant: "acme", Type: "t"}); err != nil {
		t.Error(err)
	}
}

// onShard returns an id of a group whose home is a shard.
func onShard(f *Fleet, n int) string {
	for i := 0; ; i++ {
		id := fmt.Sprintf("on-%d", i)
		if p := f.placing.last.Load(); p.homes(id, p.clock())[0] == n {
			return id
		}
	}
}
