package store

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Of the processes of a store one is the keeper; another takes over when it has been silent, and at once when it says that it ends.
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
			keeps, n, err := s.Keep(t.Context(), ProcessStatus{})
			if err != nil {
				t.Fatal(err)
			}
			if keeps && keeper != nil {
				t.Fatal("two keepers")
			}
			if keeps {
				keeper = s
			}
			if s == who[len(who)-1] && n != want {
				t.Fatalf("%d processes are counted, want %d", n, want)
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
		if _, _, err := all[2].Keep(t.Context(), ProcessStatus{}); err != nil {
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
