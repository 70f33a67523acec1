package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// listed walks all pages.
func listed(t rapid.TB, s *Store, f Filter) (ids []string) {
	for {
		page, next, err := s.Groups(context.Background(), f)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > f.Limit {
			t.Fatalf("%d groups on a page of %d", len(page), f.Limit)
		}
		for _, g := range page {
			ids = append(ids, g.ID)
		}
		if f.Cursor = next; next == "" {
			return ids
		}
	}
}

// Every listing has exactly the groups that its filter selects, the newest first, each once, for every size of page.
func TestGroups_ListsWhatTheFilterMeans(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil)
	tenants := []string{"acme", "acme.eu", "zoo"}
	var all []Group
	for i := range 60 {
		if i%3 > 0 {
			c.advance(1000) // others are of the same moment
		}
		g := create(t, s, GroupSpec{ID: fmt.Sprintf("g%02d", i), Tenant: tenants[i%7%3]})
		if i%2 == 0 {
			if _, err := s.Seal(t.Context(), g.ID); err != nil {
				t.Fatal(err)
			}
		}
		if i%5 == 0 {
			if _, err := s.Cancel(t.Context(), g.ID); err != nil && i%2 > 0 {
				t.Fatal(err)
			}
		}
	}
	for i := range 60 {
		g, err := s.Group(t.Context(), fmt.Sprintf("g%02d", i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	slices.SortStableFunc(all, func(a, b Group) int { return b.CreatedAt.Compare(a.CreatedAt) })
	rapid.Check(t, func(rt *rapid.T) {
		f := Filter{
			Limit:   rapid.IntRange(1, 70).Draw(rt, "limit"),
			Tenants: rapid.SliceOfN(rapid.SampledFrom(append(tenants, "nobody")), 0, 4).Draw(rt, "tenants"),
			Status:  rapid.SampledFrom([]Status{"", Created, Aggregating, Cancelled, Completed}).Draw(rt, "status"),
		}
		var want []string
		for _, g := range all {
			if (f.Status == "" || g.Status == f.Status) && (len(f.Tenants) == 0 || slices.Contains(f.Tenants, g.Tenant)) {
				want = append(want, g.ID)
			}
		}
		got := listed(rt, s, f)
		// Of one moment any order is right.
		if a, b := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)); !slices.Equal(a, b) {
			rt.Fatalf("%+v: %v, want %v", f, got, want)
		}
		created := map[string]int64{}
		for _, g := range all {
			created[g.ID] = g.CreatedAt.UnixMicro()
		}
		if !slices.IsSortedFunc(got, func(a, b string) int { return int(created[b] - created[a]) }) {
			rt.Fatalf("%+v: not the newest first: %v", f, got)
		}
	})
}

// A page costs as much beside thousands of groups of others as beside none.
func TestGroups_CostAPage(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	t.Parallel()
	client := redistest.Server(t).Client()
	s, _ := openOn(t, client, nil)
	cost := func() map[string]int64 {
		t.Helper()
		if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Groups(t.Context(), Filter{Tenants: []string{"acme"}, Limit: 20}); err != nil {
			t.Fatal(err)
		}
		stats, err := client.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		calls := map[string]int64{}
		for line := range strings.Lines(stats) {
			var n int64
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			if _, err := fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n); err == nil && !strings.HasPrefix(name, "config") && name != "info" {
				calls[name] = n
			}
		}
		return calls
	}
	for i := range 30 {
		create(t, s, GroupSpec{ID: fmt.Sprint("a", i), Tenant: "acme"})
	}
	before := cost()
	for i := range 2000 {
		create(t, s, GroupSpec{ID: fmt.Sprint("z", i), Tenant: fmt.Sprint("zoo", i%50)})
	}
	if after := cost(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("beside 2,000 groups of others %v, before %v", after, before)
	}
}

// Groups that an earlier version created without an entry in the lists get one when a process starts.
func TestGroups_OfAnEarlierVersionAreListed(t *testing.T) {
	t.Parallel()
	s, _ := open(t, nil)
	for i := range 5 {
		create(t, s, GroupSpec{ID: fmt.Sprint("g", i), Tenant: "acme"})
	}
	if err := s.o.Client.Del(t.Context(), s.keys[keyLists]).Err(); err != nil {
		t.Fatal(err)
	}
	next, err := New(s.o)
	if err != nil {
		t.Fatal(err)
	}
	if got := listed(t, next, Filter{Limit: 3, Tenants: []string{"acme"}, Status: Created}); len(got) != 5 {
		t.Errorf("%v", got)
	}
	if report, err := next.Audit(t.Context()); err != nil || len(report) > 0 {
		t.Errorf("%v %+v", err, report)
	}
	// An entry under another status is corrected by a repair.
	if err := s.o.Client.ZRem(t.Context(), s.keys[keyLists], s.o.Client.ZRange(t.Context(), s.keys[keyLists], 0, 0).Val()[0]).Err(); err != nil {
		t.Fatal(err)
	}
	if mended, err := next.Repair(t.Context()); err != nil || len(mended) != 1 || mended[0].What != "list" {
		t.Errorf("%v %+v", err, mended)
	}
}
