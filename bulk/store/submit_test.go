package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// Jobs for a group that was deleted arrive when another group has its id.
func TestAddJobs_RefusesAGroupCreatedAtAnotherTime(t *testing.T) {
	s, _ := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "a"})
	g, err := s.Group(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Chunk{{}, {Key: "k"}} {
		c.Created = g.CreatedAt.Add(-time.Microsecond)
		_, err = s.AddJobs(t.Context(), "g", c, []Job{{ID: "j" + c.Key, Payload: []byte("1")}})
		refused(t, err, CodeNotFound)
		c.Created = g.CreatedAt
		if a, err := s.AddJobs(t.Context(), "g", c, []Job{{ID: "j" + c.Key, Payload: []byte("1")}}); err != nil || a.Accepted != 1 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	clean(t, s)
}

// Jobs that are added in one call are stored as if each had a call of its own.
func TestAddJobs_StoresEachAsAlone(t *testing.T) {
	s, c := open(t, nil)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		together, alone := fmt.Sprint("together-", n), fmt.Sprint("alone-", n)
		jobs := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) Job {
			j := Job{
				ID:      fmt.Sprint("j", rapid.IntRange(0, 20).Draw(r, "id")),
				Type:    rapid.SampledFrom([]string{"", "", "webhook", "mail"}).Draw(r, "type"),
				Cost:    rapid.SampledFrom([]int64{0, 1, 1, 20}).Draw(r, "cost"),
				Payload: []byte(rapid.SampledFrom([]string{"1", `{"n":2}`, "a\nb c"}).Draw(r, "payload")),
			}
			if rapid.IntRange(0, 3).Draw(r, "waits") == 0 {
				j.RunAt = micros(c.us).Add(time.Hour)
			}
			if rapid.IntRange(0, 3).Draw(r, "expires") == 0 {
				j.ExpiresAt = micros(c.us).Add(2 * time.Hour)
			}
			return j
		}), 1, 12).Draw(r, "jobs")
		var keys [2]string
		for i, id := range []string{together, alone} {
			create(t, s, GroupSpec{ID: id, Tenant: "a"})
			key, err := s.short(t.Context(), id)
			if err != nil {
				r.Fatal(err)
			}
			keys[i] = key
		}
		all, err := s.AddJobs(t.Context(), together, Chunk{}, jobs)
		if err != nil {
			r.Fatal(err)
		}
		for i, j := range jobs {
			one, err := s.AddJobs(t.Context(), alone, Chunk{}, []Job{j})
			if err != nil || one.Duplicate[0] != all.Duplicate[i] {
				r.Fatalf("%s: %v, together %v (%v)", j.ID, one.Duplicate, all.Duplicate, err)
			}
			var records [2]string
			var waits [2]float64
			for k, key := range keys {
				if records[k], err = s.o.Client.HGet(t.Context(), s.keys[keyJobs], key+"/"+j.ID).Result(); err != nil {
					r.Fatal(err)
				}
				waits[k] = s.o.Client.ZScore(t.Context(), s.keys[keyWaiting], key+"/"+j.ID).Val()
			}
			if records[0] != records[1] || waits[0] != waits[1] {
				r.Errorf("job %d of %+v: %q until %v, alone %q until %v", i, jobs, records[0], waits[0], records[1], waits[1])
			}
		}
		var stored [2]Group
		for i, id := range []string{together, alone} {
			if stored[i], err = s.Group(t.Context(), id); err != nil {
				r.Fatal(err)
			}
		}
		if stored[0].Total != stored[1].Total || stored[0].Pending != stored[1].Pending {
			r.Errorf("%d jobs, %d may start; alone %d, %d", stored[0].Total, stored[0].Pending, stored[1].Total, stored[1].Pending)
		}
	})
	clean(t, s)
}

func TestAddJobs_ContinuesChunk(t *testing.T) {
	stores(t, func(t *testing.T, client redis.UniversalClient) {
		s, _ := openOn(t, client, nil)
		create(t, s, GroupSpec{ID: "g", Tenant: "a"})
		jobs := func(from, n int) []Job {
			out := make([]Job, n)
			for i := range out {
				out[i] = Job{ID: fmt.Sprint("k-", from+i), Payload: []byte("1")}
			}
			return out
		}
		a, err := s.AddJobs(t.Context(), "g", Chunk{Key: "k"}, jobs(0, 3))
		if err != nil || a.Accepted != 3 {
			t.Fatalf("%+v %v", a, err)
		}
		_, err = s.Seal(t.Context(), "g")
		refused(t, err, CodeHalfIn)
		// The interrupted chunk is sent again as a whole.
		if a, err = s.AddJobs(t.Context(), "g", Chunk{Key: "k"}, jobs(0, 4)); err != nil || a.Accepted != 1 || a.Before != 3 || a.Duplicates != 3 {
			t.Fatalf("%+v %v", a, err)
		}
		if a, err = s.AddJobs(t.Context(), "g", Chunk{Key: "k", Offset: 4, Last: true, Answer: []byte(`{"accepted":5}`)}, jobs(4, 1)); err != nil || a.Accepted != 1 || a.Before != 4 {
			t.Fatalf("%+v %v", a, err)
		}
		g, err := s.Seal(t.Context(), "g")
		if err != nil || g.Total != 5 || g.Status != Dispatched {
			t.Fatalf("%+v %v", g, err)
		}
		var done *ChunkDone
		if _, err = s.AddJobs(t.Context(), "g", Chunk{Key: "k"}, jobs(0, 4)); !errors.As(err, &done) || string(done.Answer) != `{"accepted":5}` {
			t.Fatal(err)
		}
		if state, err := s.ChunkState(t.Context(), "g", "k"); err != nil || !state.Done || string(state.Answer) != `{"accepted":5}` {
			t.Fatalf("%+v %v", state, err)
		}
		_, err = s.AddJobs(t.Context(), "g", Chunk{Key: "other"}, jobs(9, 1))
		refused(t, err, CodeSealed)
		if a, err = s.AddJobs(t.Context(), "g", Chunk{}, jobs(0, 2)); err != nil || a.Duplicates != 2 {
			t.Fatalf("known ids after the seal: %+v %v", a, err)
		}
		clean(t, s)
	})
}
