package bulk

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

// A group of one job costs at most six scripts with two running processes: create, add, seal, pull, ack, and one pull that finds
// nothing.
func TestEngine_OneJobCostsSixScripts(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	var mu sync.Mutex
	calls := map[string]int{}
	set := store.Defaults()
	fast(&set)
	var stores []*store.Store
	for range 2 {
		s, err := store.New(store.Options{Client: client, Prefix: prefix, Timeout: patience / 2, Settings: set, Log: discard(), Observe: func(script string, _ time.Duration, _ error) {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(script, "group_") || strings.HasPrefix(script, "jobs_") || strings.HasPrefix(script, "outcomes_") {
				calls[script]++
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
		_, stop := engine(t, s, Options{Worker: WorkerOptions{Count: 5}}, func(e *Engine) { e.Register("t", noop) })
		defer stop()
	}
	end := func(id string) {
		t.Helper()
		s := stores[0]
		if _, _, err := s.CreateGroup(t.Context(), store.GroupSpec{ID: id, Tenant: "acme", Type: "t"}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AddJobs(t.Context(), id, store.Chunk{Key: "k", Last: true}, []store.Job{{ID: "j", Payload: []byte("1")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Seal(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		await(t, "the group does not end", func() bool {
			d, err := s.Depths(t.Context())
			return err == nil && d.OpenGroups == 0
		})
	}
	end("first")
	await(t, "the first ack is not counted", func() bool { // the group has ended before that
		mu.Lock()
		defer mu.Unlock()
		return calls["jobs_ack"] > 0
	})
	mu.Lock()
	clear(calls)
	mu.Unlock()
	const groups = 20
	for i := range groups {
		end(fmt.Sprint("g", i))
	}
	mu.Lock()
	defer mu.Unlock()
	total := 0
	for n := range maps.Values(calls) {
		total += n
	}
	if total > 6*groups {
		t.Errorf("%d scripts for %d groups of one job: %v", total, groups, calls)
	}
	t.Log(calls)
}
