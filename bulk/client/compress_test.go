package client

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The lines arrive, in fewer bytes, and a chunk is the same chunk whether it is compressed or not.
func TestAddLines_Compressed(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	var codings atomic.Value
	s := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/jobs") {
				sent.Add(r.ContentLength)
				codings.Store(r.Header.Get("Content-Encoding"))
			}
			next.ServeHTTP(w, r)
		})
	})
	plain, text := newClient(t, s.URL, Options{}), lines(1000)
	for _, coding := range []Compression{Zstd, Gzip} {
		c := newClient(t, s.URL, Options{Compression: coding})
		g := create(t, c, GroupSpec{})
		sent.Store(0)
		got, err := c.AddLines(t.Context(), g.ID, strings.NewReader(text), Upload{ID: "x"})
		if err != nil || got.Accepted != 1000 || got.Bytes != int64(len(text)) || sent.Load() > int64(len(text))/4 || codings.Load() != string(coding) {
			t.Errorf("%s: %+v, %v; %d of %d bytes were sent as %v", coding, got, err, sent.Load(), len(text), codings.Load())
		}
		if again, err := plain.AddLines(t.Context(), g.ID, strings.NewReader(text), Upload{ID: "x"}); err != nil || again.Accepted != 1000 {
			t.Errorf("%s: again: %+v, %v", coding, again, err)
		}
		if g, err := c.Group(t.Context(), g.ID); err != nil || g.Total != 1000 {
			t.Errorf("%s: %+v, %v", coding, g, err)
		}
	}
	if _, err := New("http://x", Options{Compression: "br"}); err == nil {
		t.Error("br is accepted")
	}
}

func TestAddBatch_RepeatsAreDuplicates(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{Compression: Zstd})
	g := create(t, c, GroupSpec{})
	jobs := []Job{{ID: "a", Payload: []byte(`{"x": "<&>"}`)}, {ID: "b", Payload: []byte("1\n")}, {ID: "c", Payload: []byte("2"), Cost: 5000}}
	first, err := c.AddBatch(t.Context(), g.ID, time.Time{}, jobs)
	if err != nil || first.Accepted != 2 || first.Rejected != 1 || len(first.Rejections) != 1 || first.Rejections[0].Line != 3 {
		t.Fatalf("%+v, %v", first, err)
	}
	// Another batch, with some of the jobs.
	second, err := c.AddBatch(t.Context(), g.ID, time.Time{}, []Job{{ID: "d", Payload: []byte("4")}, jobs[0]})
	if err != nil || second.Accepted != 1 || second.Duplicates != 1 {
		t.Errorf("%+v, %v", second, err)
	}
	for name, jobs := range map[string][]Job{"no id": {{Payload: []byte("1")}}, "not JSON": {{ID: "x", Payload: []byte("{")}}, "too many": make([]Job, MaxBatch+1)} {
		if got, err := c.AddBatch(t.Context(), g.ID, time.Time{}, jobs); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
