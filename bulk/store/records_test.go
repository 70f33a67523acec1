package store

import (
	"strings"
	"testing"
	"time"
)

// TestRecords_OfAnotherVersion: missing last fields of a record are read as zeros, and fields that a later version appended survive
// every operation on the record.
func TestRecords_OfAnotherVersion(t *testing.T) {
	s, c := open(t, nil)
	w := &wreck{t: t, s: s, c: s.o.Client}
	resize := func(key int, field string, by int) {
		t.Helper()
		if err := w.c.Eval(t.Context(), `
			local r = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1]))
			for _ = 1, -tonumber(ARGV[2]) do
				if r[#r] ~= 0 then return redis.error_reply('the last field is in use') end
				r[#r] = nil
			end
			for i = 1, tonumber(ARGV[2]) do r[#r + 1] = 'later' .. i end
			return redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(r))`, []string{s.keys[key]}, field, by).Err(); err != nil {
			t.Fatal(err)
		}
	}
	last := func(key int, field string) string {
		t.Helper()
		v, err := w.c.Eval(t.Context(), `local r = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1])) return tostring(r[#r])`,
			[]string{s.keys[key]}, field).Text()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	create(t, s, GroupSpec{ID: "earlier", Tenant: "acme"})
	create(t, s, GroupSpec{ID: "later", Tenant: "beta"})
	resize(keyFlow, "1", -1)
	resize(keyTenants, "acme", -2)
	resize(keyFlow, "2", 2)
	resize(keyTenants, "beta", 2)
	for _, id := range []string{"earlier", "later"} {
		add(t, s, id, 0, 3)
	}
	if _, err := s.AddJobs(t.Context(), "earlier", Chunk{Key: "k", Last: true, Answer: []byte("{}")}, nil); err != nil {
		t.Fatal(err)
	}
	clean(t, s)
	jobs := pull(t, s, 6).Jobs
	ack(t, s, Retry, jobs[0])
	ack(t, s, Done, jobs[1:]...)
	if err := s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Minute)
	dispatch(t, s)
	ack(t, s, Done, pull(t, s, 6).Jobs...)
	for _, id := range []string{"earlier", "later"} {
		if _, err := s.Seal(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if g := reduce(t, s, id); g.Status != Completed || g.Succeeded != 3 {
			t.Errorf("%+v", g)
		}
	}
	clean(t, s)
	if g, u := last(keyFlow, "2"), last(keyTenants, "beta"); g != "later2" || u != "later2" {
		t.Errorf("what a later version has appended became %s and %s", g, u)
	}
}

// TestJobRecords_OfALaterVersion: words that a later version appends to the first line of a job's record change nothing.
func TestJobRecords_OfALaterVersion(t *testing.T) {
	s, _ := open(t, nil)
	w := &wreck{t: t, s: s, c: s.o.Client}
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 2)
	w.do("HSET", keyJobs, "1/j000000", "P3 email 1700000000 new\n{}")
	clean(t, s)
	jobs := pull(t, s, 2).Jobs
	if len(jobs) != 2 || jobs[0].Cost != 3 || jobs[0].Type != "email" || string(jobs[0].Payload) != "{}" {
		t.Fatalf("%+v", jobs)
	}
	ack(t, s, Buried, jobs[0])
	ack(t, s, Done, jobs[1])
	w.do("HSET", keyJobs, "1/j000000", "D1 1700000000000 boom 3 email 4 new words\noops{}")
	clean(t, s)
	if _, err := s.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	reduce(t, s, "g")
	if p, err := s.Dead(t.Context(), "g", "", 5); err != nil || len(p.Outcomes) != 1 || string(p.Outcomes[0].Payload) != "{}" || p.Outcomes[0].Error != "oops" {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := s.Redrive(t.Context(), "g", 0); err != nil {
		t.Fatal(err)
	}
	if again := pull(t, s, 2).Jobs; len(again) != 1 || again[0].Cost != 3 || again[0].Type != "email" || string(again[0].Payload) != "{}" {
		t.Fatalf("%+v", again)
	}
	clean(t, s)
}

// TestCreateGroup_RepeatedAcrossVersions: the spec was compared as text, so a repeat by a program with one field more was refused.
func TestCreateGroup_RepeatedAcrossVersions(t *testing.T) {
	s, _ := open(t, nil)
	w := &wreck{t: t, s: s, c: s.o.Client}
	spec := GroupSpec{ID: "g", Tenant: "acme", Type: "webhook", Rate: 5}
	create(t, s, spec)
	w.do("HSET", keyGroups, "1", `{"Later":1,"ID":"g","Tenant":"acme","Type":"webhook","Level":"normal","Weight":1,"Rate":5}`)
	if _, created, err := s.CreateGroup(t.Context(), spec); err != nil || created {
		t.Errorf("created %t, %v", created, err)
	}
	spec.Rate = 6
	_, _, err := s.CreateGroup(t.Context(), spec)
	refused(t, err, CodeExists)
}

// TestRuns_OfAnotherVersion: two runs end like any other: one whose process has a name that looks like the words after it in the record,
// and one of a version without these words.
func TestRuns_OfAnotherVersion(t *testing.T) {
	s, c := open(t, nil)
	s.o.Process = "@7"
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 5)
	submitted := c.now()
	var jobs []Leased
	for _, n := range []int{1, 1, 1, 2} { // the last two share a lease
		jobs = append(jobs, pull(t, s, n).Jobs...)
	}
	if err := s.o.Client.Eval(t.Context(), `
		local text = redis.call('HGET', KEYS[1], ARGV[1])
		return redis.call('HSET', KEYS[1], ARGV[1], string.match(text, '^(.+) @%d+ %S+$'))`, []string{s.keys[keyRuns]}, jobs[1].Key).Err(); err != nil {
		t.Fatal(err)
	}
	ack(t, s, Done, jobs[0], jobs[1], jobs[3], jobs[4])
	ack(t, s, Retry, jobs[2])
	c.advance(time.Minute)
	dispatch(t, s)
	jobs[2] = pull(t, s, 1).Jobs[0]
	ack(t, s, Done, jobs[2])
	for i, want := range []int64{submitted, 0, submitted, submitted, submitted} {
		_, id, _ := strings.Cut(jobs[i].Key, "/")
		j, err := s.Job(t.Context(), "g", id)
		if err != nil || j.Status != "succeeded" {
			t.Fatal(j, err)
		}
		if got := j.CreatedAt; want == 0 && !got.IsZero() || want != 0 && got.UnixMilli() != want/1000 {
			t.Errorf("job %d is from %s, want %s", i, got, time.UnixMicro(want))
		}
	}
	clean(t, s)
}
