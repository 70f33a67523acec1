package store

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/short"
)

// TestRepair_OpensAStuckTenant: an earlier version left a gate in a tenant's record without a wake time; repair corrects it.
func TestRepair_OpensAStuckTenant(t *testing.T) {
	s, c := open(t, nil)
	gatedTenant(t, s)
	w := &wreck{t: t, s: s, c: s.o.Client}
	w.do("ZREM", keyGates, "t/acme")
	c.advance(time.Hour)
	dispatch(t, s)
	if jobs := pull(t, s, 10).Jobs; len(jobs) != 0 {
		t.Fatalf("the tenant is not stuck: %v", ids(jobs))
	}
	restored, err := s.Repair(t.Context())
	if err != nil || len(restored) != 1 || restored[0] != (Repaired{Kind: "tenant", Name: "acme", What: "gate"}) {
		t.Fatalf("restored %v, %v", restored, err)
	}
	clean(t, s)
	if jobs := pull(t, s, 10).Jobs; len(jobs) != 1 {
		t.Errorf("%d jobs start after the repair, want 1", len(jobs))
	}
	clean(t, s)
}

// TestRepair_RestoresTheQueue breaks places and wake times by hand; one repair restores each, and a second one finds nothing.
func TestRepair_RestoresTheQueue(t *testing.T) {
	short.Skip(t, "makes many cases")
	for name, breakIt := range map[string]func(w *wreck){
		"nothing":                             func(*wreck) {},
		"a gated group without a wake time":   func(w *wreck) { w.do("ZREM", keyGates, "g/"+w.g["busy"]) },
		"a wake time of no gate":              func(w *wreck) { w.do("ZADD", keyGates, 1, "g/"+w.g["run"]) },
		"a gated tenant without a wake time":  func(w *wreck) { w.do("ZREM", keyGates, "t/spent") },
		"a group out of the queue":            func(w *wreck) { w.del(keyLines, "2/beta/") },
		"a group in the queue that is paused": func(w *wreck) { w.flow("next", "paused", 1) },
		"a tenant without its turn":           func(w *wreck) { w.do("ZREM", keyNormal, "2/beta") },
		"a tenant that is not busy":           func(w *wreck) { w.do("ZREM", keyBusy, "acme") },
		"a group that nobody looks after":     func(w *wreck) { w.do("ZREM", keyAgenda, w.g["gone"]) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := wreckable(t)
			breakIt(w)
			restored, err := w.s.Repair(t.Context())
			if err != nil || (len(restored) == 0) != (name == "nothing") {
				t.Fatalf("restored %v, %v", restored, err)
			}
			clean(t, w.s)
			if again, err := w.s.Repair(t.Context()); err != nil || len(again) != 0 {
				t.Errorf("a second repair restored %v, %v", again, err)
			}
		})
	}
}
