package wire

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSchedule(t *testing.T) {
	s := Schedule{Rate: 1000, Ramp: 2 * time.Second, Duration: 3 * time.Second}
	if s.Total() != 4000 {
		t.Errorf("%d in all, want 1000 in the ramp and 3000 after it", s.Total())
	}
	for k, want := range map[int]time.Duration{0: 0, 250: time.Second, 1000: 2 * time.Second, 1001: 2001 * time.Millisecond, 4000: 5 * time.Second} {
		if got := s.Due(k); (got - want).Abs() > time.Microsecond {
			t.Errorf("%d is due after %s, want %s", k, got, want)
		}
	}
}

func TestScheduleNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Schedule{
			Rate: rapid.Float64Range(0.1, 1e6).Draw(t, "rate"), Ramp: time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "ramp")),
			Duration: time.Duration(rapid.Int64Range(1e6, 1e10).Draw(t, "duration")),
		}
		k := rapid.IntRange(0, s.Total()).Draw(t, "k")
		if a, b := s.Due(k), s.Due(k+1); a > b || a > s.Ramp+s.Duration+time.Microsecond {
			t.Fatalf("request %d of %d is due after %s, the next after %s", k, s.Total(), a, b)
		}
	})
}

// paths asks for its paths in turn.
type paths struct {
	all  []string
	size int
}

func (p paths) Next(k int, b []byte) ([]byte, int, int) {
	i := k % len(p.all)
	return fmt.Appendf(b, "GET %s HTTP/1.1\r\nHost: x\r\nX-Fill: %s\r\n\r\n", p.all[i], strings.Repeat("x", p.size)), i, k
}

func (p paths) Answered(kind, _ int, a *Answer) string {
	if a.Status != 200 || p.all[kind] == "/hello" && string(a.Body()) != "hello" {
		return fmt.Sprintf("%s: %d %q", p.all[kind], a.Status, a.Body())
	}
	return ""
}

func TestLoop(t *testing.T) {
	var shut, held atomic.Int32
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hello":
			_, _ = w.Write([]byte("hello"))
		case "/long":
			_, _ = w.Write(make([]byte, 300_000)) // chunked
		case "/last":
			w.Header().Set("Connection", "close")
			shut.Add(1)
		case "/refused":
			http.Error(w, "no", http.StatusServiceUnavailable)
		case "/hold":
			held.Add(1)
			<-release
		case "/break":
			c, _, _ := w.(http.Hijacker).Hijack()
			_ = c.Close()
		}
	}))
	defer s.Close()
	defer close(release)
	addr := s.Listener.Addr().(*net.TCPAddr)
	loop := func(rate float64, n int, p paths) Result {
		t.Helper()
		l := Loop{
			Addrs: []*net.TCPAddr{addr, addr}, Connections: 4, Timeout: 20 * time.Second, Kinds: len(p.all),
			Schedule: Schedule{Rate: rate, Duration: time.Duration(float64(n) / max(rate, 1) * float64(time.Second))},
		}
		if rate == 0 {
			l.Schedule.Duration = 300 * time.Millisecond
		}
		if p.all[0] == "/hold" {
			l.Timeout = 100 * time.Millisecond
		}
		r, err := l.Run(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("good answers", func(t *testing.T) {
		r := loop(1000, 100, paths{all: []string{"/hello", "/long", "/last"}, size: 10_000})
		if len(r.Errors) > 0 || r.Asked != 100 || r.Latency[0].TotalCount() != 34 || r.Sent.TotalCount() != 100 || shut.Load() != 33 {
			t.Errorf("%d asked, %d hellos, %d closed, errors %v", r.Asked, r.Latency[0].TotalCount(), shut.Load(), r.Errors)
		}
	})
	t.Run("as fast as answered", func(t *testing.T) {
		if r := loop(0, 0, paths{all: []string{"/hello"}}); len(r.Errors) > 0 || r.Asked == 0 || int64(r.Asked) != r.Latency[0].TotalCount() {
			t.Errorf("%d asked, errors %v", r.Asked, r.Errors)
		}
	})
	t.Run("errors by kind", func(t *testing.T) {
		r := loop(1000, 30, paths{all: []string{"/hello", "/refused", "/break"}})
		if r.Errors[`/refused: 503 "no\n"`] != 10 || r.Errors["broken: closed without an answer"] != 10 || len(r.Errors) != 2 {
			t.Errorf("%v", r.Errors)
		}
	})
	t.Run("no answer", func(t *testing.T) {
		r := loop(1000, 50, paths{all: []string{"/hold"}})
		late, unsent := r.Errors["no answer in time"], r.Errors["never sent: no connection was free"]
		if late == 0 || late+unsent != 50 || int64(r.Asked) != late {
			t.Errorf("%d asked, %d held, %v", r.Asked, held.Load(), r.Errors)
		}
	})
}

// rounds asks for each path three times, in turns 20 ms apart, and again for what failed.
type rounds struct {
	paths
	due      []time.Duration // of each path; -1: under way
	left     []int
	pick     int // of the last Due
	refused  int
	answered int
}

func (r *rounds) next(now time.Duration) int {
	for i, due := range r.due {
		if due >= 0 && due <= now && r.left[i] > 0 {
			return i
		}
	}
	return -1
}

func (r *rounds) Due(now time.Duration) (time.Duration, bool) {
	if r.pick = r.next(now); r.pick >= 0 {
		return r.due[r.pick], true
	}
	return 0, false
}

func (r *rounds) Over(time.Duration) bool { return slices.Max(r.left) == 0 }

func (r *rounds) Next(_ int, b []byte) ([]byte, int, int) {
	i := r.pick
	b, kind, _ := r.paths.Next(i, b)
	r.due[i] = -1
	return b, kind, i
}

func (r *rounds) Answered(kind, i int, a *Answer) string {
	r.answered++
	r.left[i]--
	r.due[i] = time.Duration(4-r.left[i]) * 20 * time.Millisecond
	return r.paths.Answered(kind, i, a)
}

func (r *rounds) Failed(_, i int) {
	r.refused++
	r.due[i] = 0
}

func TestTimetable(t *testing.T) {
	var n atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/break" && n.Add(1) <= 2 {
			c, _, _ := w.(http.Hijacker).Hijack()
			_ = c.Close()
			return
		}
		_, _ = w.Write([]byte("hello"))
	}))
	defer s.Close()
	src := &rounds{paths: paths{all: []string{"/hello", "/other", "/break"}}, due: make([]time.Duration, 3), left: []int{3, 3, 3}}
	loop := Loop{Addrs: []*net.TCPAddr{s.Listener.Addr().(*net.TCPAddr)}, Connections: 2, Timeout: 20 * time.Second, Kinds: 3}
	r, err := loop.Run(t.Context(), src)
	if err != nil || src.answered != 9 || src.refused != 2 || r.Asked != 11 || r.Errors["broken: closed without an answer"] != 2 {
		t.Errorf("%d answered, %d failed, %d asked, errors %v, %v", src.answered, src.refused, r.Asked, r.Errors, err)
	}
	if r.Elapsed < 60*time.Millisecond || r.Latency[0].TotalCount() != 3 || r.Sent.TotalCount() != 11 {
		t.Errorf("%s for requests that are due over 60 ms, %d hellos, %d sent", r.Elapsed, r.Latency[0].TotalCount(), r.Sent.TotalCount())
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src = &rounds{paths: src.paths, due: make([]time.Duration, 3), left: []int{3, 3, 3}}
	if r, err := loop.Run(ctx, src); err != nil || r.Asked != 0 {
		t.Errorf("a loop that is over has asked %d times, %v", r.Asked, err)
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr)
	_ = l.Close()
	loop := Loop{Addrs: []*net.TCPAddr{addr}, Connections: 1, Timeout: time.Second, Kinds: 1, Schedule: Schedule{Rate: 1, Duration: time.Second}}
	if _, err := loop.Run(t.Context(), paths{all: []string{"/"}}); err == nil {
		t.Error("a run without a server succeeded")
	}
}
