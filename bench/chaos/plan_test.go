package main

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSchedule_LeavesHalfOfGatewaysRunning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, gateways := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(2, 12).Draw(t, "gateways")
		plan := schedule(seed, gateways, time.Minute)
		if !reflect.DeepEqual(plan, schedule(seed, gateways, time.Minute)) {
			t.Fatal("another plan for the same seed")
		}
		count := map[what]int{}
		long := 0
		for i, f := range plan {
			count[f.what]++
			if f.at < 0 || f.last <= 0 || f.at+f.last > time.Minute {
				t.Fatalf("from %s for %s", f.at, f.last)
			}
			if f.what == freeze {
				if f.last > gap {
					long++
				} else if f.last > 2*time.Second {
					t.Fatalf("a freeze of %s may be taken out of room time or not", f.last)
				}
			}
			out := 1
			for _, g := range plan[:i] {
				if g.at+g.last <= f.at || (g.what == freeze) != (f.what == freeze) {
					continue
				}
				if f.what == freeze || g.who == f.who {
					t.Fatalf("%+v while %+v", f, g)
				}
				out++
			}
			if f.what != freeze && out > (gateways+1)/2 {
				t.Fatalf("%d of %d gateways are out", out, gateways)
			}
		}
		if count[kill] < 3 || count[freeze] < 4 || long < 1 {
			t.Fatalf("%d gateways killed, %d stopped, Redis stopped %d times, %d of them for long", count[kill], count[pause], count[freeze], long)
		}
	})
}
