package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// busyOrigin serves capacity requests a second, in their order. Other requests wait, and a request that would wait for too long fails
// immediately.
type busyOrigin struct {
	*httptest.Server
	mu       sync.Mutex
	capacity float64 // requests a second
	service  time.Duration
	free     time.Time

	asked, failed atomic.Int64
}

const patient = 2 * time.Second

func newBusyOrigin(t testing.TB, capacity float64) *busyOrigin {
	o := &busyOrigin{capacity: capacity, service: 100 * time.Millisecond}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

func (o *busyOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.asked.Add(1)
	o.mu.Lock()
	now := time.Now()
	if o.free.Before(now) {
		o.free = now
	}
	wait := o.free.Sub(now)
	if wait <= patient {
		o.free = o.free.Add(time.Duration(float64(time.Second) / o.capacity))
	}
	wait += time.Duration(float64(o.service) * math.Exp(0.15*rand.NormFloat64()))
	late := wait > patient+o.service
	o.mu.Unlock()
	if late {
		o.failed.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		_, _ = io.WriteString(w, "served")
	case <-r.Context().Done():
	}
}

func (o *busyOrigin) set(capacity float64, service time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.capacity, o.service = capacity, service
}

// throng keeps a number of visitors in the queue; each makes some requests over a few seconds after its admission.
type throng struct {
	g       *gateway
	client  *http.Client
	visits  sync.WaitGroup
	inLine  atomic.Int64
	entered atomic.Int64
}

const perVisitor = 2

func newThrong(t testing.TB, g *gateway, inLine int64) *throng {
	c := &throng{g: g, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}, Timeout: 30 * time.Second}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for every(ctx, 10*time.Millisecond) {
			for n := 0; c.inLine.Load() < inLine && n < 10; n++ {
				c.inLine.Add(1)
				c.visits.Go(func() { c.visit(ctx) })
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
		c.visits.Wait()
		c.client.CloseIdleConnections()
	})
	return c
}

// every waits for a duration, and returns false if ctx ends first.
func every(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (c *throng) do(ctx context.Context, method, path, header, value string) (body []byte, ok bool) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.g.addr+path, nil)
	if err != nil {
		return nil, false
	}
	if header != "" {
		r.Header.Set(header, value)
	}
	res, err := c.client.Do(r)
	if err != nil {
		return nil, false
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return body, err == nil
}

func (c *throng) visit(ctx context.Context) {
	var s struct {
		State, Token, Pass string
		RefreshAfter       float64 `json:"refresh_after"`
	}
	token := ""
	for s.Pass == "" {
		method, path := http.MethodGet, "/.waiting-room/sale/status"
		if token == "" {
			method, path = http.MethodPost, "/.waiting-room/sale/tickets"
		}
		s.RefreshAfter, s.Token = 1, ""
		if body, ok := c.do(ctx, method, path, "X-Waiting-Room-Token", token); ok {
			_ = json.Unmarshal(body, &s)
		}
		if s.Token != "" {
			token = s.Token
		}
		if s.Pass == "" && !every(ctx, time.Duration(s.RefreshAfter*float64(time.Second))) {
			c.inLine.Add(-1)
			return
		}
	}
	c.inLine.Add(-1)
	c.entered.Add(1)
	for n := range perVisitor {
		if n > 0 && !every(ctx, time.Duration(rand.Float64()*1.5*float64(time.Second))) {
			return
		}
		c.do(ctx, http.MethodGet, "/"+strconv.Itoa(n), "X-Waiting-Room-Pass", s.Pass)
	}
}

// metric returns a gauge of the room.
func metric(t testing.TB, g *gateway, name string) (v float64, ok bool) {
	t.Helper()
	for line := range strings.Lines(adminOf(t, g).ask("GET", "/metrics", "").body) {
		if rest, found := strings.CutPrefix(line, name+`{room="sale"} `); found {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return v, err == nil
		}
	}
	return 0, false
}

// A slow origin receives fewer visitors, and after its recovery as many as before. The two latencies are far below and far above the
// target, so that delays of a busy machine do not matter.
func TestAdaptive_FollowsOrigin(t *testing.T) {
	t.Parallel()
	const well, slow = 20 * time.Millisecond, 3 * time.Second
	site := newBusyOrigin(t, 1000)
	site.set(1000, well)
	g := start(t, setup{origin: site.URL, rooms: []string{room(
		"admission: {strategy: adaptive, rate: 10, min_rate: 1, max_rate: 20, target_p95: 800ms}")}})
	newThrong(t, g, 40)
	limit := func() (v float64) {
		t.Helper()
		until(t, "the limit is told", func() (ok bool) { v, ok = metric(t, g, "anteroom_rate_limit"); return ok })
		return v
	}
	until(t, "the rate grows while the origin is well", func() bool { return limit() > 10.5 })
	site.set(1000, slow)
	within(t, 3*patience, "the rate is cut", func() bool { return limit() < 6 })
	var r struct {
		Adaptive struct {
			State           string
			Target          float64
			P95             float64 `json:"p95_seconds"`
			TargetP95       float64 `json:"target_p95_seconds"`
			Requests, Score *float64
		}
		Policy struct{ Rate float64 }
	}
	var a answer
	if !eventually(patience, func() bool { // the measurements may be a moment older than the cut
		a = adminOf(t, g).get("rooms/sale").want(http.StatusOK)
		return json.Unmarshal([]byte(a.body), &r) == nil && r.Adaptive.State == "unhealthy" && r.Adaptive.P95 >= 0.8 && r.Adaptive.TargetP95 == 0.8 &&
			r.Adaptive.Target == r.Policy.Rate && r.Adaptive.Requests != nil && r.Adaptive.Score == nil
	}) {
		t.Errorf("operators are told %+v\n%s", r, a.body)
	}
	site.set(1000, well)
	low := limit()
	until(t, "the rate grows again", func() bool { low = min(low, limit()); return limit() > low*1.2 })
}

// In mode step the rate is the highest, the lowest or halfway, and recovers one step at a time.
func TestAdaptive_StepsFollowOrigin(t *testing.T) {
	t.Parallel()
	const well, slow = 20 * time.Millisecond, 3 * time.Second
	site := newBusyOrigin(t, 1000)
	site.set(1000, well)
	g := start(t, setup{origin: site.URL, rooms: []string{room(
		"admission: {strategy: adaptive, mode: step, rate: 20, min_rate: 8, max_rate: 40, target_p95: 800ms}")}})
	newThrong(t, g, 30)
	seen := map[float64]bool{}
	comesTo := func(want float64) func() bool {
		return func() bool {
			rate, ok := metric(t, g, "anteroom_rate_limit")
			if ok {
				seen[rate] = true
			}
			return ok && rate == want
		}
	}
	until(t, "all that is allowed, while the origin is well", comesTo(40))
	site.set(1000, slow)
	until(t, "the least", comesTo(8))
	clear(seen)
	site.set(1000, well)
	until(t, "all again", comesTo(40))
	if want := map[float64]bool{8: true, 24: true, 40: true}; !maps.Equal(seen, want) {
		t.Errorf("on the way back the rates were %v", seen)
	}
	if a := adminOf(t, g).get("rooms/sale").want(http.StatusOK); !strings.Contains(a.body, `"mode":"step"`) && !strings.Contains(a.body, `"mode": "step"`) {
		t.Errorf("operators are told %s", a.body)
	}
}

// In four and a half minutes the capacity of an origin changes from 100 visitors a second to 40 and back. The rate follows.
func TestAdaptive_Settles(t *testing.T) {
	if os.Getenv("E2E_LONG") == "" {
		t.Skip("takes 4.5 minutes; set E2E_LONG=1, or use: make adaptive")
	}
	const part = 90 // seconds
	site := newBusyOrigin(t, 100*perVisitor)
	g := start(t, setup{origin: site.URL, rooms: []string{room(
		"admission: {strategy: adaptive, rate: 50, min_rate: 5, max_rate: 150, target_p95: 400ms}")}, more: "log: {access: false}\n"})
	c := newThrong(t, g, 200)
	type sample struct {
		rate          float64
		asked, failed int64
	}
	for k, capacity := range []float64{100, 40, 100} {
		site.set(capacity*perVisitor, 80*time.Millisecond)
		var samples []sample
		ticker := time.NewTicker(time.Second)
		for i := range part {
			<-ticker.C
			rate, _ := metric(t, g, "anteroom_rate_limit")
			samples = append(samples, sample{rate, site.asked.Load(), site.failed.Load()})
			if k == 1 && i == 9 {
				t.Log(adminOf(t, g).get("rooms/sale").body)
			}
			if i%5 == 4 {
				p95, _ := metric(t, g, "anteroom_adaptive_latency_seconds")
				lately, _ := metric(t, g, "anteroom_rate")
				t.Logf("%3d s: capacity %3.0f, rate %6.1f, admitted %5.1f/s, p95 %4.0f ms, %d entered, %d failed", k*part+i+1, capacity, rate, lately, p95*1000, c.entered.Load(), site.failed.Load())
			}
		}
		ticker.Stop()
		after := 0
		for i, s := range samples {
			if s.rate < 0.7*capacity || s.rate > 1.2*capacity {
				after = i + 1
			}
		}
		low, high := math.Inf(1), 0.0
		from := min(max(after, 30), part-1) // the requests that waited before the cut are done by then
		for _, s := range samples[from:] {
			low, high = min(low, s.rate), max(high, s.rate)
		}
		asked, failed := samples[part-1].asked-samples[from].asked, samples[part-1].failed-samples[from].failed
		errors := 100 * float64(failed) / float64(max(1, asked))
		fmt.Printf("capacity %3.0f/s: settled after %2d s; from 30 s on between %.2f and %.2f of it, %.2f %% errors of %d requests\n", capacity, after, low/capacity, high/capacity, errors, asked)
		if after > 30 || errors >= 1 {
			t.Errorf("capacity %v: settled after %d s, %.2f %% errors", capacity, after, errors)
		}
	}
}
