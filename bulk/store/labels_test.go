package store

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

func TestLabels_OneFormForEachSet(t *testing.T) {
	t.Parallel()
	l := LabelsOf(map[string]string{"b": "2=3", "a": ""})
	if l != "a= b=2%3D3" || fmt.Sprint(l.Map()) != "map[a: b:2=3]" || Labels("").Map() != nil {
		t.Errorf("%q, %v", l, l.Map())
	}
	many := map[string]string{}
	for i := range MaxLabels + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for what, labels := range map[string]Labels{
		"at most 16": LabelsOf(many), `the key "A"`: "A=1", `the key ""`: "=1", "a value of 256 bytes": Labels("a=" + strings.Repeat("x", 256)),
		"control characters": "a=%01", "sorted by key": "b=1 a=1",
	} {
		if err := (&GroupSpec{Tenant: "t", Type: "t", Labels: labels}).Validate(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A search finds exactly the groups with all labels, of the tenants and status asked for, newest first, over one shard and over several,
// whatever the size of its pages; and deleting a group leaves nothing of its labels behind.
func TestGroups_FoundByLabels(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			f, err := NewFleet(Options{Shards: shards, Prefix: redistest.Prefix(t), Timeout: 10 * time.Second, Settings: Defaults(), Log: slog.New(slog.DiscardHandler)}, redistest.Client(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, uint64(shards)))
			var all []GroupSpec
			for i := range 60 {
				g := GroupSpec{ID: fmt.Sprintf("g%02d", i), Tenant: []string{"acme", "other"}[r.IntN(2)], Type: "mail"}
				labels := map[string]string{}
				for _, key := range []string{"campaign", "region", "env"} {
					if n := r.IntN(3); n > 0 {
						labels[key] = fmt.Sprint("<", n, " ü>")
					}
				}
				g.Labels = LabelsOf(labels)
				if _, _, err := f.CreateGroup(t.Context(), g); err != nil {
					t.Fatal(err)
				}
				if i%5 == 0 {
					if _, err := f.Cancel(t.Context(), g.ID); err != nil {
						t.Fatal(err)
					}
				}
				all = append(all, g)
			}
			list := func(filter Filter) (ids []string) {
				for {
					groups, next, away, err := f.Groups(t.Context(), filter)
					if err != nil || len(away) > 0 {
						t.Fatal(err, away)
					}
					for _, g := range groups {
						ids = append(ids, g.ID)
					}
					if filter.Cursor = next; next == "" {
						return ids
					}
				}
			}
			for range 40 {
				filter := Filter{Limit: 1 + r.IntN(9)}
				if r.IntN(2) == 0 {
					filter.Tenants = []string{"acme"}
				}
				if r.IntN(3) == 0 {
					filter.Status = Cancelled
				}
				for _, key := range []string{"campaign", "region", "env"}[:1+r.IntN(3)] {
					filter.Labels = append(filter.Labels, fmt.Sprintf("%s=<%d ü>", key, 1+r.IntN(2)))
				}
				var want []string
				for i, g := range slices.Backward(all) {
					has := func(l string) bool { key, value, _ := strings.Cut(l, "="); return g.Labels.Map()[key] == value }
					if (filter.Tenants == nil || g.Tenant == "acme") && (filter.Status == "" || i%5 == 0) && !slices.ContainsFunc(filter.Labels, func(l string) bool { return !has(l) }) {
						want = append(want, g.ID)
					}
				}
				if got := list(filter); !slices.Equal(got, want) {
					t.Fatalf("%+v: %v, want %v", filter, got, want)
				}
			}
			if found, err := f.Audit(t.Context()); err != nil || len(found) > 0 {
				t.Fatalf("audit: %v, %v", found, err)
			}
			for _, g := range all {
				if _, err := f.Cancel(t.Context(), g.ID); err != nil {
					t.Fatal(err)
				}
			}
			for n, s := range f.Shards() {
				for _, g := range all {
					for removed := false; !removed; {
						tended, err := s.Tend(t.Context(), g.ID)
						if isCode(err, CodeNotFound) {
							break
						}
						if err != nil {
							t.Fatal(err)
						}
						if removed = tended.Removed; !removed && !tended.Again {
							if _, err := s.Delete(t.Context(), g.ID, time.Minute); err != nil && !isCode(err, CodeState) {
								t.Fatal(err)
							}
						}
					}
				}
				if left := s.o.Client.ZCard(t.Context(), s.keys[keyLists]).Val(); left != 0 {
					t.Errorf("shard %d: %d entries are left", n, left)
				}
			}
		})
	}
}

// A page that ends where its shard has been read to has the group of that place: sorting may not move the end before it.
func TestGroups_PageEndsAfterItsLastGroup(t *testing.T) {
	t.Parallel()
	at := func(id, place string) shardGroup {
		return shardGroup{listedGroup{Group{GroupSpec: GroupSpec{ID: id}}, strings.Repeat("t", timeBytes) + place}, 1}
	}
	want := []shardGroup{at("b", "2"), at("a", "1"), at("", "1")}
	for _, list := range [][]shardGroup{{want[2], want[1], want[0]}, {want[1], want[2], want[0]}} {
		slices.SortFunc(list, byPlace)
		for i := range list {
			if list[i].ID != want[i].ID {
				t.Errorf("%d: group %q, want %q", i, list[i].ID, want[i].ID)
			}
		}
	}
}
