package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// later ends runs so that each job is due after its own wait.
func later(t testing.TB, s *Store, jobs []Leased, wait func(i int) time.Duration) {
	t.Helper()
	acks := make([]Ack, len(jobs))
	for i, j := range jobs {
		acks[i] = Ack{Key: j.Key, Fence: j.Fence, Verdict: Retry, Code: "x", Retries: 1000, After: wait(i)}
	}
	if _, err := s.Ack(t.Context(), acks); err != nil {
		t.Fatal(err)
	}
}

// TestFront_DueFirstStartsFirst: returned jobs start in the order in which they were due, whatever their ids and however many rounds of
// the dispatcher return them.
func TestFront_DueFirstStartsFirst(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Congestion, set.DispatchBatch = false, 70 })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 300)
	jobs := pull(t, s, 300).Jobs
	later(t, s, jobs, func(i int) time.Duration { return time.Hour - time.Duration(i)*time.Second })
	rounds(t, s, c, 2*time.Hour)
	for dispatch(t, s).More {
	}
	clean(t, s)
	want := ids(jobs)
	slices.Reverse(want)
	if got := ids(pull(t, s, 300).Jobs); !slices.Equal(got, want) {
		t.Errorf("started %.60v, want %.60v", got, want)
	}
	clean(t, s)
}

// TestFront_SteadyInflowStarvesNobody: while jobs become due as fast as jobs start, a job that was due earlier starts earlier, and jobs
// that never ran start too.
func TestFront_SteadyInflowStarvesNobody(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Congestion = false })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 40)
	jobs := pull(t, s, 40).Jobs
	if _, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "z", Payload: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	last := pull(t, s, 1).Jobs
	later(t, s, last, func(int) time.Duration { return time.Minute })
	later(t, s, jobs, func(int) time.Duration { return time.Minute + time.Second })
	add(t, s, "g", 1000, 100)
	c.advance(2 * time.Minute)
	fresh, seen := 0, false
	for round := range 20 {
		dispatch(t, s)
		jobs := pull(t, s, 10).Jobs
		for _, j := range jobs {
			if j.ID == "z" && j.Attempt == 2 && round > 0 {
				t.Errorf("the job that was due first started in round %d", round)
			}
			seen = seen || j.ID == "z"
			if j.ID >= "j001000" && j.ID < "z" && j.Attempt == 1 {
				fresh++
			}
		}
		later(t, s, jobs, func(int) time.Duration { return time.Second })
		c.advance(2 * time.Second)
	}
	if !seen || fresh < 48 || fresh > 64 { // a quarter of 200, and up to a turn
		t.Errorf("the job that was due first started: %t, and %d of those that never ran", seen, fresh)
	}
	clean(t, s)
}

// TestFront_TurnsHaveABound: while a group has returned and new jobs, at most 48 returned jobs start in a row, then 16 new ones. Returned
// jobs start by the time they were due, ties by id.
func TestFront_TurnsHaveABound(t *testing.T) {
	s, c := open(t, func(set *Settings) { set.Congestion = false })
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		id := fmt.Sprint("g", n)
		create(t, s, GroupSpec{ID: id, Tenant: fmt.Sprint("t", n)})
		type back struct {
			due int64
			id  string
		}
		var front []back
		waiting, order, running := map[string]int64{}, []string{}, []Leased{}
		inFront, inOrder, added := 0, 0, 0
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			if k := rapid.IntRange(0, 120).Draw(rt, "added"); k > 0 {
				add(t, s, id, added, k)
				for i := range k {
					order = append(order, fmt.Sprintf("j%06d", added+i))
				}
				added += k
			}
			if len(running) > 0 {
				waits := rapid.SliceOfN(rapid.IntRange(1, 20), len(running), len(running)).Draw(rt, "waits")
				later(t, s, running, func(i int) time.Duration { return time.Duration(waits[i]) * time.Second })
				for i, j := range running {
					waiting[j.ID] = c.us + int64(max(waits[i], 1))*1e6
				}
			}
			c.advance(time.Duration(rapid.IntRange(0, 30).Draw(rt, "passed")) * time.Second)
			for dispatch(t, s).More {
			}
			for id, due := range waiting {
				if due <= c.us {
					front = append(front, back{due, id})
					delete(waiting, id)
				}
			}
			slices.SortFunc(front, func(a, b back) int {
				if a.due != b.due {
					return int(a.due - b.due)
				}
				if a.id < b.id {
					return -1
				}
				return 1
			})
			running = pull(t, s, rapid.IntRange(1, 200).Draw(rt, "want")).Jobs
			for _, j := range running {
				both := len(front) > 0 && len(order) > 0
				switch {
				case len(front) > 0 && front[0].id == j.ID:
					front = front[1:]
					inFront, inOrder = inFront+1, 0
				case len(order) > 0 && order[0] == j.ID:
					order = order[1:]
					inFront, inOrder = 0, inOrder+1
				default:
					rt.Fatalf("job %s started, at the front is %.1v, in the order %.1v", j.ID, front, order)
				}
				if !both {
					inFront, inOrder = 0, 0
				}
				if inFront > 48 || inOrder > 16 {
					rt.Fatalf("%d that came back or %d others started in a row", inFront, inOrder)
				}
			}
		}
		if _, err := s.Cancel(t.Context(), id); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestFront_OfAnEarlierVersion: jobs that the scripts of an earlier version returned to the front start before all later ones, in a
// pull and after a round of the dispatcher, and a cancel finds them.
func TestFront_OfAnEarlierVersion(t *testing.T) {
	for _, row := range []string{"pull", "dispatch", "cancel"} {
		t.Run(row, func(t *testing.T) {
			s, c := open(t, func(set *Settings) { set.Congestion = false })
			w := &wreck{t: t, s: s, c: s.o.Client}
			create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
			add(t, s, "g", 0, 30)
			jobs := pull(t, s, 30).Jobs
			ack(t, s, Returned, jobs[:20]...)
			// An earlier version wrote <group>/<id>, and records of groups without the last field.
			if err := w.c.Eval(t.Context(), `
				for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
					redis.call('ZREM', KEYS[1], member)
					redis.call('ZADD', KEYS[1], 0, '1/' .. string.match(member, ' (j%d+)$'))
				end
				local r = cmsgpack.unpack(redis.call('HGET', KEYS[2], '1'))
				if r[#r] ~= 0 then return redis.error_reply('the last field is in use') end
				r[#r] = nil
				redis.call('HSET', KEYS[2], '1', cmsgpack.pack(r))
				return redis.call('ZCARD', KEYS[1])`, []string{s.keys[keyFront], s.keys[keyFlow]}).Err(); err != nil {
				t.Fatal(err)
			}
			clean(t, s)
			switch row {
			case "cancel":
				ack(t, s, Done, jobs[20:]...)
				if _, err := s.Cancel(t.Context(), "g"); err != nil {
					t.Fatal(err)
				}
				for range 5 {
					if _, err := s.Tend(t.Context(), "g"); err != nil {
						t.Fatal(err)
					}
				}
				clean(t, s)
				if g, _ := s.Group(t.Context(), "g"); g.Cancelled != 20 || g.Pending != 0 {
					t.Errorf("%+v", g)
				}
				return
			case "dispatch":
				later(t, s, jobs[20:], func(int) time.Duration { return time.Second })
				c.advance(time.Minute)
				dispatch(t, s)
				clean(t, s)
			}
			p := pull(t, s, 20)
			if got := ids(p.Jobs); !slices.Equal(got, ids(jobs[:20])) || p.Dropped != 0 {
				t.Errorf("started %v, %d dropped", got, p.Dropped)
			}
			clean(t, s)
		})
	}
}
