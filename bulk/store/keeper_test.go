package store

import (
	"slices"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// One process of a store is the keeper. Another takes over when the keeper is silent for a while, and at once when the keeper reports its end.
func TestKeep_OneOfAll(t *testing.T) {
	t.Parallel()
	client, prefix, c := redistest.Client(t), redistest.Prefix(t), &clock{us: begin}
	var all []*Store
	for range 4 {
		s, err := New(Options{Client: client, Prefix: prefix, Timeout: 10 * time.Second, Settings: Defaults(), Now: c.now})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	round := func(want int, who ...*Store) (keeper *Store) {
		t.Helper()
		for _, s := range who {
			kept, err := s.Keep(t.Context(), ProcessStatus{})
			if err != nil {
				t.Fatal(err)
			}
			if kept.Keeper && keeper != nil {
				t.Fatal("two keepers")
			}
			if kept.Keeper {
				keeper = s
			}
			if s == who[len(who)-1] && kept.Processes != want {
				t.Fatalf("%d processes are counted, want %d", kept.Processes, want)
			}
		}
		return keeper
	}
	if round(4, all...) != all[0] {
		t.Fatal("the first to ask is not the keeper")
	}
	for range 20 {
		c.advance(all[0].KeepEvery())
		if round(4, all[3], all[2], all[1], all[0]) != all[0] {
			t.Fatal("the keeper has changed")
		}
	}
	// The keeper is killed.
	var next *Store
	silent := time.Duration(0)
	for ; next == nil; silent += all[0].KeepEvery() {
		c.advance(all[0].KeepEvery())
		next = round(4, all[2], all[3], all[1])
	}
	if next != all[2] || silent > 2*time.Second {
		t.Fatalf("another took over after %v", silent)
	}
	for range 9 { // by then the killed one is forgotten
		c.advance(all[0].KeepEvery())
		if _, err := all[2].Keep(t.Context(), ProcessStatus{}); err != nil {
			t.Fatal(err)
		}
	}
	if round(3, all[1], all[3], all[2]) != all[2] {
		t.Fatal("the keeper has changed")
	}
	if err := all[2].Unkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if round(2, all[3], all[1]) != all[3] {
		t.Error("nobody took over at once")
	}
}

// An offered group goes to one process that meets its need. An offer that is not repeated is dropped.
func TestOffer_GoesToOneProcess(t *testing.T) {
	t.Parallel()
	s, c := open(t, nil)
	offer := func(group, need string, want bool) {
		t.Helper()
		if waits, err := s.Offer(t.Context(), group, need); err != nil || waits != want {
			t.Errorf("Offer(%s, %s): %t, %v; want %t", group, need, waits, err, want)
		}
	}
	keep := func(want []string, needs ...string) {
		t.Helper()
		kept, err := s.Keep(t.Context(), ProcessStatus{}, needs...)
		if err != nil || !slices.Equal(kept.Groups, want) {
			t.Errorf("with %q: %q, %v; want %q", needs, kept.Groups, err, want)
		}
	}
	offer("b", "reduce/x", false)
	c.advance(time.Second)
	offer("a", "reduce/x", false)
	offer("b", "reduce/y", false)
	offer("a", "callback", false)
	offer("a", "reduce/x", true)
	keep(nil)
	keep(nil, "reduce/z")
	keep([]string{"a", "b"}, "reduce/x")
	keep(nil, "reduce/x")
	offer("a", "reduce/x", false)
	keep([]string{"a", "a"}, "callback", "reduce/x")
	c.advance(offerFor - time.Second)
	offer("d", "reduce/y", false)
	c.advance(time.Second)
	offer("d", "reduce/y", true)
	keep([]string{"d"}, "reduce/y")
}
