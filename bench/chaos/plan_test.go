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
		count := map[kind]int{}
		long := 0
		for i, f := range plan {
			count[f.kind]++
			if f.at < 0 || f.length <= 0 || f.at+f.length > time.Minute {
				t.Fatalf("from %s for %s", f.at, f.length)
			}
			if f.kind == freeze {
				if f.length > gap {
					long++
				} else if f.length > 2*time.Second {
					t.Fatalf("a freeze of %s may be taken out of room time or not", f.length)
				}
			}
			out := 1
			for _, g := range plan[:i] {
				if g.at+g.length <= f.at || (g.kind == freeze) != (f.kind == freeze) {
					continue
				}
				if f.kind == freeze || g.gateway == f.gateway {
					t.Fatalf("%+v while %+v", f, g)
				}
				out++
			}
			if f.kind != freeze && out > (gateways+1)/2 {
				t.Fatalf("%d of %d gateways are out", out, gateways)
			}
		}
		if count[kill] < 3 || count[freeze] < 4 || long < 1 {
			t.Fatalf("%d gateways killed, %d stopped, Redis stopped %d times, %d of them for long", count[kill], count[pause], count[freeze], long)
		}
	})
}

func TestFailovers_EndBeforeTheNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		n, free := 0, time.Duration(0)
		for _, f := range failovers(schedule(seed, 4, time.Minute)) {
			switch f.kind {
			case freeze:
				t.Fatal("a freeze is left")
			case fail:
				if f.at < free || f.gateway != n {
					t.Fatalf("failure %d: %+v, before %s", n, f, free)
				}
				n, free = n+1, f.at+f.length+outage
			}
		}
		if n < 3 {
			t.Fatalf("%d masters fail", n)
		}
	})
}
