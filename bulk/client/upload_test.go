package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/short"
)

// total returns how many jobs a group has by the server's own count.
func total(t testing.TB, s *server, group string) int64 {
	t.Helper()
	g, err := s.store.Group(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	return g.Total
}

// The connection breaks often, in both directions and at any byte: each line is added once.
func TestUpload_ThroughUnreliableConnection(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	const jobs = 30_000 // of about 50 bytes: seven chunks
	s := serve(t)
	bad := cut(t, s.Server)
	var retries int
	c := newClient(t, bad.url(), Options{OnRetry: func(error, time.Duration) { retries++ }})
	g := create(t, c, GroupSpec{})
	c.o.HTTP.CloseIdleConnections()
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for range 3 { // in the middle of a chunk, in the middle of an answer, and after a chunk or two
		bad.sending(random.Int64N(200_000), -1, 300_000+random.Int64N(400_000))
		bad.receiving(-1, random.Int64N(200), -1)
	}
	u, err := c.AddLines(t.Context(), g.ID, strings.NewReader(lines(jobs)), Upload{})
	if err != nil || u.Lines != jobs || u.Accepted != jobs || u.Duplicates != 0 || u.Rejected != 0 {
		t.Fatalf("%+v, %v", u, err)
	}
	if n := total(t, s, g.ID); n != jobs {
		t.Errorf("%d jobs are in; want %d", n, jobs)
	}
	if bad.done() < 5 {
		t.Errorf("the connection broke %d times: too few to show anything", bad.done())
	}
	t.Logf("%d cuts, %d retries", bad.done(), retries)
	// The same upload once more, through a line that is good, changes nothing, even after the seal.
	if _, err := c.Seal(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	again, err := newClient(t, s.URL, Options{}).AddLines(t.Context(), g.ID, strings.NewReader(lines(jobs)), Upload{ID: u.ID})
	if err != nil || again.Accepted != jobs || total(t, s, g.ID) != jobs {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// A program that was killed during an upload sends its file again.
func TestUpload_ContinuesInAnotherProcess(t *testing.T) {
	t.Parallel()
	const jobs = 12_000
	s := serve(t)
	bad := cut(t, s.Server)
	first := newClient(t, bad.url(), Options{Patience: -1, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	g := create(t, newClient(t, s.URL, Options{}), GroupSpec{})
	bad.sending(-1, 150_000)
	u, err := first.AddLines(t.Context(), g.ID, strings.NewReader(lines(jobs)), Upload{ID: "file-1"})
	if _, ok := errors.AsType[*Unreachable](err); !ok || u.Lines != ChunkLines || u.ID != "file-1" {
		t.Fatalf("%+v, %v; want one chunk, and the second cut off", u, err)
	}
	u, err = newClient(t, s.URL, Options{}).AddLines(t.Context(), g.ID, strings.NewReader(lines(jobs)), Upload{ID: "file-1"})
	if err != nil || u.Accepted != jobs || u.Duplicates != 0 || total(t, s, g.ID) != jobs {
		t.Errorf("%+v, %v; %d jobs are in, want %d", u, err, total(t, s, g.ID), jobs)
	}
}

// Lines that changed in the file between two runs are sent: a changed chunk is not taken for the earlier chunk at its place.
func TestUpload_RefusesChangedFile(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	g := create(t, c, GroupSpec{})
	for i, jobs := range []string{`{"id":"a","payload":1}`, `{"id":"a","payload":1}` + "\n" + `{"id":"b","payload":2}`} {
		u, err := c.AddLines(t.Context(), g.ID, strings.NewReader(jobs), Upload{ID: "file"})
		if err != nil || u.Accepted != 1 || u.Duplicates != int64(i) {
			t.Errorf("run %d: %+v, %v", i, u, err)
		}
	}
	if n := total(t, s, g.ID); n != 2 {
		t.Errorf("%d jobs are in; want 2", n)
	}
}

func TestUpload_OfJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	g := create(t, c, GroupSpec{})
	var seen []int64
	u, err := c.AddJobs(t.Context(), g.ID, func(yield func(Job) bool) {
		for i := range ChunkLines + 2 {
			job := Job{ID: fmt.Sprint("j", i), Payload: json.RawMessage(`{"a": "<&>"}`), Cost: 2, RunAt: time.Now().Add(time.Hour)}
			if i == ChunkLines {
				job = Job{ID: "no payload"}
			}
			if !yield(job) {
				return
			}
		}
	}, Upload{OnChunk: func(u Uploaded) { seen = append(seen, u.Lines) }})
	if err != nil || u.Accepted != ChunkLines+1 || u.Rejected != 1 || u.Rejections[0].Line != ChunkLines+1 {
		t.Errorf("%+v, %v", u, err)
	}
	if fmt.Sprint(seen) != fmt.Sprint([]int64{ChunkLines, ChunkLines + 2}) {
		t.Errorf("OnChunk was told of %v lines", seen)
	}
	bad := func(yield func(Job) bool) { yield(Job{ID: "x", Payload: json.RawMessage("{")}) }
	if _, err := c.AddJobs(t.Context(), g.ID, bad, Upload{}); err == nil || !strings.Contains(err.Error(), `job "x"`) {
		t.Errorf("a job that is not JSON: %v", err)
	}
}

func TestUpload_OfBadLines(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	g := create(t, c, GroupSpec{})
	u, err := c.AddLines(t.Context(), g.ID, strings.NewReader(strings.Join([]string{
		`{"payload":1}`,
		`{"payload":"` + strings.Repeat("x", MaxLine) + `"}`, // not sent
		`{"payload":"` + strings.Repeat("x", 70<<10) + `"}`,  // beyond the server's limits.line
		strings.Repeat("nonsense\n", 1500) + `{"payload":2}`, // more than the server names
	}, "\n")), Upload{})
	if err != nil || u.Lines != 1504 || u.Accepted != 2 || u.Rejected != 1502 || len(u.Rejections) != KeptRejections {
		t.Fatalf("%d lines, %d accepted, %d rejected, %d kept, %v", u.Lines, u.Accepted, u.Rejected, len(u.Rejections), err)
	}
	for i, want := range []string{"more than 1048576 are not sent", "limits.line", "not valid JSON"} {
		if r := u.Rejections[i]; r.Line != int64(i+2) || !strings.Contains(r.Reason, want) {
			t.Errorf("rejected %+v; want line %d, %s", r, i+2, want)
		}
	}
}

// A source that fails ends the upload. The incomplete chunk is not sent, so the next run cuts the same chunks.
func TestUpload_FromBrokenSource(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	g := create(t, c, GroupSpec{})
	broken := errors.New("the disk is gone")
	u, err := c.AddLines(t.Context(), g.ID, io.MultiReader(strings.NewReader(lines(ChunkLines+10)), iotest.ErrReader(broken)), Upload{})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "after line 5010") || u.Lines != ChunkLines || total(t, s, g.ID) != ChunkLines {
		t.Errorf("%+v, %v", u, err)
	}
}

// An upload keeps one chunk in memory, whatever the length of the file.
func TestUpload_ReadsOnlyItsChunk(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	g := create(t, c, GroupSpec{})
	var read atomic.Int64
	line := `{"payload":"` + strings.Repeat("x", 10_000) + "\"}\n"
	source := io.TeeReader(strings.NewReader(strings.Repeat(line, 2000)), counter(&read))
	var most int64
	u, err := c.AddLines(t.Context(), g.ID, source, Upload{OnChunk: func(u Uploaded) { most = max(most, read.Load()-u.Bytes) }})
	if err != nil || u.Bytes != int64(2000*len(line)) || u.Accepted != 2000 {
		t.Fatalf("%+v, %v", u, err)
	}
	if most > 64<<10 {
		t.Errorf("%d bytes were read ahead of what the server had answered", most)
	}
}

func counter(n *atomic.Int64) io.Writer {
	return writerFunc(func(p []byte) (int, error) { n.Add(int64(len(p))); return len(p), nil })
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// failing answers the first requests to a path itself.
func failing(path string, answers ...http.HandlerFunc) fault {
	return func(next http.Handler) http.Handler {
		var asked atomic.Int64
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n := asked.Add(1); strings.HasSuffix(r.URL.Path, path) && n <= int64(len(answers)) {
				answers[n-1](w, r)
				return
			} else if !strings.HasSuffix(r.URL.Path, path) {
				asked.Add(-1)
			}
			next.ServeHTTP(w, r)
		})
	}
}

func TestUpload_WaitsForBusyServer(t *testing.T) {
	t.Parallel()
	busy := func(status int, after string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}
			http.Error(w, "busy", status)
		}
	}
	s := serve(t, failing("/jobs", busy(503, ""), busy(429, "1"), busy(502, "")))
	var pauses []time.Duration
	c := newClient(t, s.URL, Options{OnRetry: func(_ error, pause time.Duration) { pauses = append(pauses, pause) }})
	g := create(t, c, GroupSpec{})
	u, err := c.AddLines(t.Context(), g.ID, strings.NewReader(lines(10)), Upload{})
	if err != nil || u.Accepted != 10 || len(pauses) != 3 || pauses[1] != time.Second {
		t.Errorf("%+v, %v, pauses %v", u, err, pauses)
	}
}

// A tenant's quota admits a chunk in small parts, over a longer time than patience.
func TestUpload_WaitsForQuota(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	s := serveWith(t, func(o *store.Settings) { o.PendingPerTenant = 1000 })
	s.work(t)
	var told []string
	c := newClient(t, s.URL, Options{Patience: 7 * time.Second, OnRetry: func(err error, pause time.Duration) {
		told = append(told, fmt.Sprintf("%.9s %v", err, pause))
	}})
	g := create(t, c, GroupSpec{})
	u, err := c.AddLines(t.Context(), g.ID, strings.NewReader(lines(3400)), Upload{})
	if err != nil || u.Accepted != 3400 || u.Duplicates != 0 {
		t.Errorf("%+v, %v", u, err)
	}
	if len(told) == 0 || told[0] != "429 quota 5s" {
		t.Errorf("told %q", told)
	}
}

// A server that reads a chunk and never responds: the client closes the connection after a while and sends the chunk again.
func TestUpload_ToSilentServer(t *testing.T) {
	t.Parallel()
	s := serve(t, failing("/jobs", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	var told error
	c := newClient(t, s.URL, Options{OnRetry: func(err error, _ time.Duration) { told = err }})
	c.stall = 300 * time.Millisecond
	g := create(t, c, GroupSpec{})
	u, err := c.AddLines(t.Context(), g.ID, strings.NewReader(lines(10)), Upload{})
	if err != nil || u.Accepted != 10 || told == nil || !strings.Contains(told.Error(), "nothing moved on the connection for 300ms") {
		t.Errorf("%+v, %v, told %v", u, err, told)
	}
}

func TestUpload_EndsWithContext(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := newClient(t, s.URL, Options{})
	g := create(t, c, GroupSpec{})
	ctx, cancel := context.WithCancel(t.Context())
	u, err := c.AddLines(ctx, g.ID, strings.NewReader(lines(3*ChunkLines)), Upload{OnChunk: func(Uploaded) { cancel() }})
	if !errors.Is(err, context.Canceled) || u.Lines != ChunkLines {
		t.Errorf("%+v, %v", u, err)
	}
}
