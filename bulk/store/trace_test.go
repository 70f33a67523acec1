package store

import (
	"strings"
	"testing"
	"time"
)

// The trace of a submission comes with each run of its jobs; the other words of a record mean what they did.
func TestPull_ReturnsTraceOfSubmission(t *testing.T) {
	s, c := open(t, nil)
	create(t, s, GroupSpec{ID: "g", Tenant: "acme", Type: "mail"})
	traced := Trace{ID: [16]byte{0: 0xfb, 15: 1}, Span: [8]byte{7: 2}, State: "vendor=a t1,other=b"}
	hour := time.UnixMicro(c.us).Add(time.Hour)
	for _, add := range []struct {
		of   Trace
		jobs []Job
	}{
		{traced, []Job{{ID: "a", Payload: []byte(`" t"`)}, {ID: "b", Type: "t", Payload: []byte("1"), ExpiresAt: hour}}},
		{Trace{}, []Job{{ID: "c", Payload: []byte(`" tAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"`)}, {ID: "d", Payload: []byte("1"), ExpiresAt: hour}}},
	} {
		if _, err := s.AddJobs(t.Context(), "g", Chunk{Trace: add.of}, add.jobs); err != nil {
			t.Fatal(err)
		}
	}
	submit(t, s, Single{Job: Job{ID: "e"}, Trace: traced})
	submit(t, s, Single{Job: Job{ID: "f"}})
	for id, expires := range map[string]bool{"a": false, "b": true, "c": false, "d": true} {
		j, err := s.Job(t.Context(), "g", id)
		if err != nil || j.Status != "pending" || j.ExpiresAt.IsZero() == expires || expires && !j.ExpiresAt.Equal(hour) {
			t.Errorf("%+v, %v", j, err)
		}
	}
	want := map[string]Trace{"a": traced, "b": traced, "e": traced}
	check := func(jobs []Leased, n int) {
		t.Helper()
		if len(jobs) != n {
			t.Fatalf("%d jobs: %v", len(jobs), ids(jobs))
		}
		for _, j := range jobs {
			if j.Trace != want[j.ID] || j.ID == "b" && j.Type != "t" || j.ID == "a" && string(j.Payload) != `" t"` {
				t.Errorf("%+v", j)
			}
		}
	}
	jobs := pull(t, s, 10).Jobs
	check(jobs, 6)
	for _, j := range jobs {
		verdict := Done
		if j.ID == "a" || j.ID == "b" || j.ID == "c" {
			verdict = Retry
		}
		ack(t, s, verdict, j)
	}
	clean(t, s)
	rounds(t, s, c, 10*time.Minute)
	second := pull(t, s, 10).Jobs
	check(second, 3)
	if second[0].Attempt != 2 {
		t.Errorf("%+v", second[0])
	}
}

// A group keeps the trace of the request that created it. The same spec with another trace is the same group, and a redrive has none.
func TestCreateGroup_KeepsTrace(t *testing.T) {
	s, _ := open(t, nil)
	spec := GroupSpec{ID: "g", Tenant: "acme", Type: "mail", Trace: Trace{ID: [16]byte{1}, Span: [8]byte{2}, State: "a=1"}}
	again := create(t, s, spec).GroupSpec
	again.Trace = Trace{ID: [16]byte{3}, Span: [8]byte{4}}
	g, created, err := s.CreateGroup(t.Context(), again)
	if err != nil || created || g.Trace != spec.Trace {
		t.Errorf("created %v with %+v, %v", created, g.Trace, err)
	}
	if g, err = s.Group(t.Context(), "g"); err != nil || g.Trace != spec.Trace {
		t.Errorf("%+v, %v", g.Trace, err)
	}
	if redrive := (&found{Group: g}).redriveSpec("g", &RedriveOptions{}); redrive.Trace != (Trace{}) {
		t.Errorf("the redrive has %+v", redrive.Trace)
	}
}

func TestTrace_TextIsBounded(t *testing.T) {
	for _, row := range []struct{ is, want Trace }{
		{Trace{}, Trace{}},
		{Trace{ID: [16]byte{1}, Span: [8]byte{2}}, Trace{ID: [16]byte{1}, Span: [8]byte{2}}},
		{Trace{ID: [16]byte{1}, State: strings.Repeat("a", MaxTraceState)}, Trace{ID: [16]byte{1}, State: strings.Repeat("a", MaxTraceState)}},
		{Trace{ID: [16]byte{1}, State: strings.Repeat("a", MaxTraceState+1)}, Trace{ID: [16]byte{1}}},
	} {
		text, err := row.is.MarshalText()
		var got Trace
		if err == nil {
			err = got.UnmarshalText(text)
		}
		if err != nil || got != row.want {
			t.Errorf("%+v became %s and %+v, %v", row.is, text, got, err)
		}
	}
	for _, text := range []string{"", "!", "AAAA", strings.Repeat("A", 31)} {
		got := Trace{ID: [16]byte{9}}
		if err := got.UnmarshalText([]byte(text)); err != nil || got != (Trace{}) {
			t.Errorf("%q became %+v, %v", text, got, err)
		}
	}
}
