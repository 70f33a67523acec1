package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// idOn returns an id that leads to a shard and begins with a text.
func idOn(t testing.TB, f *Fleet, begin string, shard int) string {
	t.Helper()
	for i := range 1000 {
		id := fmt.Sprintf("%s%d", begin, i)
		if homes, err := f.homes(t.Context(), id); err != nil || homes[0] == f.shards[shard] {
			return id
		}
	}
	t.Fatal("no id leads to the shard")
	return ""
}

// What belongs together has one home: the part before ::, the runs of a schedule, and redrives of both.
func TestPlacements_KeepTogether(t *testing.T) {
	for _, row := range []struct{ id, key string }{
		{"campaign::first", "campaign"}, {"campaign::first-r2", "campaign"}, {"a-r1::b", "a"}, {"::b", "::b"}, {"a:b:c", "a:b:c"},
		{"schedule:nightly:20261126T020000Z", "schedule:nightly"}, {"schedule:nightly:20261126T020000Z-r3", "schedule:nightly"},
		{"schedule:nightly::k-1", "schedule:nightly"}, {"schedule:nightly:20261126T020000Z::x", "schedule:nightly"}, {"schedule:", "schedule:"}, {"jobs:abc", "jobs:abc"}, {"jobs:acme::abc", "jobs:acme"},
	} {
		if got := homeKey(row.id); got != row.key {
			t.Errorf("the key of %s is %s, want %s", row.id, got, row.key)
		}
	}
}

// Of many requests with one key, in any shard, one creates a group, and the others get it.
func TestFleet_UniqueGroupsOverAllShards(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	spec := func(id string) GroupSpec {
		return GroupSpec{ID: id, Tenant: "acme", Type: "t", MaxGroups: 50, Unique: Unique{Key: "newsletter", Within: time.Minute}}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	made, got := 0, map[string]int{}
	for i := range 12 {
		wg.Go(func() {
			g, created, err := f.CreateGroup(t.Context(), spec(fmt.Sprintf("u%d", i)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || created == g.Duplicate {
				t.Error(g.ID, created, g.Duplicate, err)
			}
			if got[g.ID]++; created {
				made++
			}
		})
	}
	wg.Wait()
	if made != 1 || len(got) != 1 {
		t.Fatalf("%d groups were created under one key; requests got %v", made, got)
	}
	// The request that created it can be repeated, another tenant has keys of its own, and a deleted group keeps the key.
	var first string
	for first = range got {
	}
	if g, created, err := f.CreateGroup(t.Context(), spec(first)); err != nil || created || g.Duplicate || g.ID != first {
		t.Error(g.ID, created, g.Duplicate, err)
	}
	other := spec("other")
	other.Tenant = "zoo"
	if _, created, err := f.CreateGroup(t.Context(), other); err != nil || !created {
		t.Error(created, err)
	}
	if _, err := f.Cancel(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	s, err := f.shardOf(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	tendAll(t, s, "", first)
	if gone, err := f.Delete(t.Context(), first, 5*time.Second); err != nil || !gone {
		t.Fatal(gone, err)
	}
	for n := range f.shards {
		if _, _, err := f.CreateGroup(t.Context(), spec(idOn(t, f, "late", n))); !isCode(err, CodeExists) {
			t.Errorf("shard %d: %v", n, err)
		}
	}
	auditFleet(t, f)
}

func auditFleet(t testing.TB, f *Fleet) {
	t.Helper()
	if broken, err := f.Audit(t.Context()); err != nil || len(broken) > 0 {
		t.Error(broken, err)
	}
}

// A single job with an id or a key is accepted once, also after shards were added; others are spread; a quota counts all.
func TestFleet_SingleJobs(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	f := fleet(t, 2, prefix, nil, client)
	single := func(id, key string) Single {
		in := Single{Job: Job{ID: id, Type: "t", Payload: []byte("1")}, Tenant: "acme"}
		if key != "" {
			in.Unique = Unique{Key: key, Within: time.Hour}
		}
		return in
	}
	first := map[string]Submitted{}
	for _, row := range []struct {
		id, key, same string
	}{{"a", "", ""}, {"b", "k", ""}, {"a", "", "a"}, {"", "k", "b"}, {"a", "other", "a"}, {"c", "k", "b"}} {
		done, err := f.Submit(t.Context(), single(row.id, row.key))
		if err != nil || done.Duplicate != (row.same != "") || row.same != "" && (done.Group != first[row.same].Group || done.ID != row.same) {
			t.Fatalf("%+v: %+v, %v", row, done, err)
		}
		first[done.ID] = done
	}
	on := map[*Store]int{}
	for range 40 {
		done, err := f.Submit(t.Context(), single("", ""))
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.shardOf(t.Context(), done.Group)
		if err != nil {
			t.Fatal(err)
		}
		on[s]++
		if _, err := f.Job(t.Context(), done.Group, done.ID); err != nil {
			t.Fatal(err)
		}
	}
	if len(on) != 2 {
		t.Errorf("40 jobs without names are on %d shards", len(on))
	}
	full := single("", "")
	full.MaxPending = 42
	if _, err := f.Submit(t.Context(), full); !isCode(err, CodeQuota) {
		t.Errorf("of 42 jobs in two shards: %v", err)
	}
	full.MaxPending = 43
	if _, err := f.Submit(t.Context(), full); err != nil {
		t.Error(err)
	}
	// Groups of single jobs do not count towards max_groups, in any shard.
	if _, _, err := f.CreateGroup(t.Context(), GroupSpec{ID: "only", Tenant: "acme", Type: "t", MaxGroups: 1}); err != nil {
		t.Error(err)
	}

	// Names are known where later placements no longer lead.
	grown := fleet(t, 4, prefix, nil, client)
	p := *grown.placing.last.Load()
	for n, from := range []int64{1, 2} { // both count already
		p.placements = append(p.placements, placement{from, [][]int{{2, 3}, {1, 3}}[n]})
	}
	p.at = time.Now()
	grown.placing.last.Store(&p)
	for _, row := range []struct{ id, key, same string }{{"a", "", "a"}, {"", "k", "b"}, {"new", "fresh", ""}, {"new", "", "new"}, {"", "fresh", "new"}} {
		done, err := grown.Submit(t.Context(), single(row.id, row.key))
		if err != nil || done.Duplicate != (row.same != "") || row.same != "" && done.ID != row.same {
			t.Fatalf("%+v: %+v, %v", row, done, err)
		}
		if _, err := grown.Job(t.Context(), done.Group, done.ID); err != nil {
			t.Errorf("%+v: %v", done, err)
		}
	}
	auditFleet(t, f)
}

// A group waits for groups on any shard. One whose id is left to the engine is on the shard of its predecessor, while new groups go there.
func TestFleet_Chains(t *testing.T) {
	f := fleet(t, 3, redistest.Prefix(t), nil, redistest.Client(t))
	first := idOn(t, f, "first", 0)
	if _, _, err := f.CreateGroup(t.Context(), GroupSpec{ID: first, Tenant: "acme", Type: "t"}); err != nil {
		t.Fatal(err)
	}
	for n := range f.shards {
		_, _, err := f.CreateGroup(t.Context(), GroupSpec{ID: idOn(t, f, "none", n), Tenant: "acme", Type: "t", After: first + " missing"})
		if !isCode(err, CodeInvalid) || !strings.Contains(err.Error(), `"missing"`) {
			t.Errorf("shard %d: a missing predecessor: %v", n, err)
		}
	}
	second := GroupSpec{ID: f.IDBeside(first, "second"), Tenant: "acme", Type: "t", After: first}
	if g, created, err := f.CreateGroup(t.Context(), second); err != nil || !created || second.ID != first+"::second" {
		t.Fatal(g.ID, created, err)
	}
	if _, err := f.shards[0].Group(t.Context(), second.ID); err != nil {
		t.Error(err)
	}
	// Where new groups go elsewhere since, so does this one.
	p := *f.placing.last.Load()
	p.placements = append(slices.Clone(p.placements), placement{1, []int{1, 2}})
	p.at = time.Now()
	f.placing.last.Store(&p)
	third := GroupSpec{ID: f.IDBeside(second.ID, "third"), Tenant: "acme", Type: "t", After: second.ID}
	for i := range 2 {
		if g, created, err := f.CreateGroup(t.Context(), third); err != nil || created != (i == 0) || g.GatedBy != GatedByAfter {
			t.Fatalf("%+v %v %v", g, created, err)
		}
	}
	if _, err := f.shards[0].Group(t.Context(), third.ID); !isCode(err, CodeNotFound) {
		t.Errorf("%s is on the shard without new groups: %v", third.ID, err)
	}
	auditFleet(t, f)
}
