package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// running is a job in flight in a simulation on a virtual clock.
type running struct {
	job  Leased
	took time.Duration
	ends int64
}

// timed simulates workers that share two tenants, "a" and "b", of always enough jobs. look is called at each event with what
// each tenant has worked: ended runs, and running ones until now.
type timed struct {
	workers int
	weights [2]float64
	took    func(tenant int) time.Duration
	starts  [2]int
	ended   [2]time.Duration
	flight  [2]int           // most jobs in flight at once
	longest [2]time.Duration // longest run
}

func (w *timed) run(t *testing.T, s *Store, c *clock, events int, look func(worked [2]time.Duration)) {
	t.Helper()
	for i, name := range []string{"a", "b"} {
		if _, err := s.SetTenant(t.Context(), Tenant{Name: name, Weight: w.weights[i]}); err != nil {
			t.Fatal(err)
		}
		create(t, s, GroupSpec{ID: name, Tenant: name})
		add(t, s, name, 0, 2500)
	}
	var flight []running
	for range events {
		for len(flight) < w.workers {
			p := pull(t, s, w.workers-len(flight))
			for _, j := range p.Jobs {
				i := int(j.Tenant[0] - 'a')
				took := w.took(i)
				w.starts[i]++
				w.longest[i] = max(w.longest[i], took)
				flight = append(flight, running{j, took, c.us + took.Microseconds()})
			}
			if !p.More {
				break
			}
		}
		var worked [2]time.Duration
		var count [2]int
		for _, r := range flight {
			i := int(r.job.Tenant[0] - 'a')
			count[i]++
			worked[i] += r.took - time.Duration(r.ends-c.us)*time.Microsecond
		}
		for i := range worked {
			worked[i] += w.ended[i]
			w.flight[i] = max(w.flight[i], count[i])
		}
		look(worked)
		slices.SortFunc(flight, func(a, b running) int { return int(a.ends - b.ends) })
		done := flight[0]
		flight = flight[1:]
		c.us = max(c.us, done.ends)
		w.ended[int(done.job.Tenant[0]-'a')] += done.took
		if _, err := s.Ack(t.Context(), []Ack{{Key: done.job.Key, Fence: done.job.Fence, Verdict: Done, Took: done.took}}); err != nil {
			t.Fatal(err)
		}
	}
	clean(t, s)
}

// For two tenants that always have jobs, by time: |worked_i/w_i − worked_j/w_j| is at most the sum of the charge of one visit, twice
// the charge of jobs in flight (charged at the start, corrected at the end), and the slack of the correction, each over its weight.
func TestByTime_KeepsTheBoundOfWork(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 13))
			s, c := open(t, func(set *Settings) { set.Global = 1e6 })
			weigh := func() float64 { return []float64{0.5, 1, 1, 3}[random.IntN(4)] }
			w := timed{workers: 1 + random.IntN(12), weights: [2]float64{weigh(), weigh()}}
			var base [2]float64
			for i := range base {
				base[i] = []float64{2, 20, 300, 2000}[random.IntN(4)]
			}
			w.took = func(i int) time.Duration {
				ms := base[i] * (0.5 + random.Float64())
				if random.IntN(20) == 0 {
					ms *= 10
				}
				return time.Duration(ms * float64(time.Millisecond))
			}
			w.run(t, s, c, 400, func(worked [2]time.Duration) {
				bound := 0.0
				for i := range worked {
					longest := max(w.longest[i], 10*time.Millisecond).Seconds()
					visit := min(max(0.2, longest), float64(max(4, w.workers))*longest)
					bound += (visit + 2*float64(w.flight[i])*longest + 2*0.01) / w.weights[i]
				}
				apart := math.Abs(worked[0].Seconds()/w.weights[0] - worked[1].Seconds()/w.weights[1])
				if apart > bound {
					t.Fatalf("%v worked at weights %v: %.3f s apart, the bound is %.3f s", worked, w.weights, apart, bound)
				}
			})
		})
	}
}

// One tenant's jobs take 200 times as long as the other's: by time both get half of the workers, by starts half of the starts.
func TestByTime_SharesWorkersAndNotStarts(t *testing.T) {
	for _, row := range []struct {
		byStarts   bool
		low, high  float64 // share of the slow tenant in the work
		slowStarts int     // most
	}{
		{false, .45, .55, 60},
		{true, .95, 1, 2500},
	} {
		t.Run(fmt.Sprint("by starts ", row.byStarts), func(t *testing.T) {
			t.Parallel()
			s, c := open(t, func(set *Settings) { set.Global, set.ByStarts = 1e6, row.byStarts })
			w := timed{workers: 10, weights: [2]float64{1, 1}, took: func(i int) time.Duration {
				return []time.Duration{time.Second, 5 * time.Millisecond}[i]
			}}
			var worked [2]time.Duration
			w.run(t, s, c, 2000, func(now [2]time.Duration) { worked = now })
			share := worked[0].Seconds() / (worked[0] + worked[1]).Seconds()
			if share < row.low || share > row.high || w.starts[0] > row.slowStarts {
				t.Errorf("the slow tenant has %.3f of the work with %d starts, want %v to %v and at most %d", share, w.starts[0], row.low, row.high, row.slowStarts)
			}
		})
	}
}

// rawGroup reads the fields of a group's record that are numbers.
func rawGroup(t *testing.T, s *Store, id string) map[string]int64 {
	t.Helper()
	r, err := s.run(t.Context(), "group_read", "id", id)
	if err != nil {
		t.Fatal(err)
	}
	line, v := list(r[0]), map[string]int64{}
	for i := 1; i+1 < len(line); i += 2 {
		v[line.string(i)] = asInt(line.string(i + 1))
	}
	return v
}

// A group without others in its queue is charged for the time of its runs at its next visit, a group with others at once; both end at
// the same tag.
func TestByTime_SettlesALoneGroupWithItsNextVisit(t *testing.T) {
	tags := map[bool]int64{}
	for _, alone := range []bool{true, false} {
		s, _ := open(t, func(set *Settings) { set.Global = 1e6 })
		create(t, s, GroupSpec{ID: "g", Tenant: "a"})
		add(t, s, "g", 0, 20)
		jobs := pull(t, s, 4).Jobs
		if !alone {
			create(t, s, GroupSpec{ID: "h", Tenant: "a"})
			add(t, s, "h", 0, 20)
		}
		acks := []Ack{}
		for _, j := range jobs {
			acks = append(acks, Ack{Key: j.Key, Fence: j.Fence, Verdict: Done, Took: 5 * time.Millisecond})
		}
		acks[3].Took = 500 * time.Millisecond
		if _, err := s.Ack(t.Context(), acks); err != nil {
			t.Fatal(err)
		}
		lag := int64(0)
		if alone {
			lag = 475_000 // 515 ms of work, charged as 40
		}
		v := rawGroup(t, s, "g")
		if v["lag"] != lag || v["due"] != 0 {
			t.Fatalf("alone %t: lag is %d µs, want %d, and due is %d", alone, v["lag"], lag, v["due"])
		}
		before := v["tag"]
		pull(t, s, 8)
		v = rawGroup(t, s, "g")
		if v["lag"] != 0 {
			t.Errorf("alone %t: lag is %d µs after a visit", alone, v["lag"])
		}
		if alone {
			before += 475_000 * 65536 / 8000
		}
		tags[alone] = before
		clean(t, s)
	}
	if tags[true] != tags[false] {
		t.Errorf("the tag with what is settled is %d alone and %d beside another group", tags[true], tags[false])
	}
}

// However a run ends, its expected charge is corrected; only a run of unknown length keeps the charge.
func TestByTime_SettlesEveryRun(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Global, set.Lease = 1e6, time.Second })
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	add(t, s, "g", 0, 8)
	raw := func() map[string]int64 { return rawGroup(t, s, "g") }
	jobs := pull(t, s, 8).Jobs
	if v := raw(); v["charged"] != 80_000 || v["expect"] != 0 {
		t.Fatalf("8 jobs of a new group are charged %d µs, 10 ms each are expected", v["charged"])
	}
	acks := []Ack{}
	for i, v := range []Verdict{Done, Rejected, Retry, Buried, Throttled, Returned} {
		a := Ack{Key: jobs[i].Key, Fence: jobs[i].Fence, Verdict: v, After: time.Hour, Retries: 3, Took: 500 * time.Millisecond}
		if v == Returned {
			a.Took = 0
		}
		acks = append(acks, a)
	}
	if _, err := s.Ack(t.Context(), acks); err != nil {
		t.Fatal(err)
	}
	if v := raw(); v["charged"] != 20_000 || v["expect"] != 500_000 || v["due"] != 0 || v["inflight"] != 2 {
		t.Errorf("after six acks: %v", v)
	}
	if n, err := s.Reclaim(t.Context(), []int64{jobs[7].Fence}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if v := raw(); v["charged"] != 10_000 {
		t.Errorf("after a reclaim %d µs are charged", v["charged"])
	}
	dispatch(t, s)
	for range 12 { // the first silence holds the leases
		c.advance(300 * time.Millisecond)
		dispatch(t, s)
	}
	if v := raw(); v["charged"] != 0 || v["inflight"] != 0 {
		t.Errorf("with nothing in flight: %v", v)
	}
	clean(t, s)
}
