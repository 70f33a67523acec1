package bulk

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bulk/store"
)

// Each shard is preferred by some process and each process prefers two shards; a process more or less changes little.
func TestPreferring_ServesEveryShard(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 32).Draw(t, "shards")
		var names []string
		for i := range rapid.IntRange(1, 40).Draw(t, "processes") {
			names = append(names, fmt.Sprintf("%x", i*7919))
		}
		all, prefers := preferredBy(shards, names), map[string]int{}
		for n, who := range all {
			if len(who) < min(preferredShards, len(names)) {
				t.Fatalf("shard %d is preferred by %v", n, who)
			}
			for _, p := range who {
				prefers[p]++
			}
		}
		sum := 0
		for _, p := range names {
			if sum += prefers[p]; prefers[p] < min(preferredShards, shards) {
				t.Fatalf("process %s prefers %d shards", p, prefers[p])
			}
		}
		if most := 2*preferredShards*max(len(names), shards) + 2*shards; sum > most {
			t.Fatalf("%d shards of %d processes are preferred %d times", shards, len(names), sum)
		}
	})
}

// A process takes jobs of another shard while its own have none, and none while they have.
func TestLanes_TakeTurnsWithOtherShards(t *testing.T) {
	all := lanes{{}, {}, {}}
	all[2].preference.secondary.Store(true)
	if !all.idle() {
		t.Error("no shard has jobs")
	}
	p := &all[0].preference
	if p.pulled(&store.Pulled{More: true}, 5); all.idle() {
		t.Error("a preferred shard has jobs left")
	}
	if p.pulled(&store.Pulled{Limited: true}, 5); all.idle() {
		t.Error("the jobs of a preferred shard wait for the rate")
	}
	p.pulled(&store.Pulled{Jobs: make([]store.Leased, 3)}, 5)
	if !all.idle() || !all[2].preference.pulled(&store.Pulled{More: true}, 5) || !all.idle() {
		t.Error("only preferred shards count")
	}
	if names := preferredBy(3, []string{"a"}); !slices.Equal(names[0], []string{"a"}) || len(names[2]) != 1 {
		t.Errorf("one process: %v", names)
	}
}
