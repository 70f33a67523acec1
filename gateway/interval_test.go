package gateway

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestInterval(t *testing.T) {
	p := newPace(10*time.Minute, 20000, 500, 100)
	for _, row := range []struct {
		seconds int64
		want    float64
	}{{0, 2}, {10, 2}, {20, 2}, {50, 5}, {300, 30}, {600, 60}, {7200, 60}} {
		if got := p.interval(5, wait{true, row.seconds, 0, 0}); got != row.want {
			t.Errorf("a wait of %d s: %v", row.seconds, got)
		}
	}
	if got := p.interval(5, wait{}); got != unsureFront {
		t.Errorf("an unknown wait at the front: %v", got)
	}
	if got := p.interval(5000, wait{}); got != unsureRest {
		t.Errorf("an unknown wait farther back: %v", got)
	}
}

// Polling as advised keeps every place, misses no turn by more than half of the wait, and holds the budget where these
// two allow it; those who are near wait no longer for it than without a budget.
func TestPaceHoldsTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		absence := time.Duration(rapid.IntRange(180, 3600).Draw(t, "absence")) * time.Second
		budget := rapid.IntRange(100, 50000).Draw(t, "budget")
		waiting := rapid.Int64Range(1, 3_000_000).Draw(t, "waiting")
		tail := rapid.Float64Range(1, 20000).Draw(t, "tail")
		p := newPace(absence, budget, waiting, tail)
		free := newPace(absence, 0, waiting, tail)
		var polls, least float64
		const n = 4000
		last := 0.0
		for i := range n {
			at := (float64(i) + .5) / n * tail
			w := wait{true, int64(at), 0, 0}
			v := p.interval(1<<20, w)
			if v < last {
				t.Fatalf("who waits %v s polls more often (%v) than who waits less (%v)", at, v, last)
			}
			last = v
			if v > absence.Seconds()/4 || v > max(at/2, p.base(at)) {
				t.Fatalf("a wait of %v s: %v", at, v)
			}
			if at < p.cutoff && v != free.interval(1<<20, w) {
				t.Fatalf("a wait of %v s, before the cutoff at %v: %v", at, p.cutoff, v)
			}
			polls += float64(waiting) / n / v
			least += float64(waiting) / n / p.raised(float64(int64(at)))
		}
		if polls > float64(budget)*1.15 && polls > least*1.15 {
			t.Fatalf("%v polls/s over a budget of %d, %v were possible", polls, budget, least)
		}
	})
}

func TestSpread(t *testing.T) {
	p := newPace(10*time.Minute, 0, 0, 0)
	sum := 0.0
	const n = 20000
	for i := range n {
		random := float64(i) / n
		s := p.spread(20, random)
		if s < 17 || s > 23 {
			t.Fatalf("20 s became %d", s)
		}
		sum += float64(s)
		if f := firstPoll(random); f < 1 || f > 3 {
			t.Fatalf("the first poll after %d s", f)
		}
	}
	if mean := sum / n; mean < 19.8 || mean > 20.2 {
		t.Errorf("the mean of 20 s is %v", mean)
	}
	if s := p.spread(150, 0.99); s != 150 {
		t.Errorf("beyond a quarter of absence: %d", s)
	}
}

func TestStatusIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := status{
			room: "sale", state: "waiting", position: rapid.Int64Range(0, 1e9).Draw(t, "position"), waiting: 3,
			eta: wait{rapid.Bool().Draw(t, "known"), 1, 2, 3}, refresh: 2, joinedAt: 1780000000123456,
			message: rapid.String().Draw(t, "message"), reason: rapid.String().Draw(t, "reason"),
			pass: []byte("a.b.c"), expiresAt: 1780000000, token: []byte("d.e.f"), compat: rapid.Bool().Draw(t, "compat"), now: 1780000000123456,
		}
		var out map[string]any
		if err := json.Unmarshal(s.append(nil), &out); err != nil {
			t.Fatal(err)
		}
		if out["message"] != s.message || out["joined_at"] != "2026-05-28T20:26:40.123456Z" || (out["position"] == nil) != (s.position == 0) {
			t.Fatalf("%v", out)
		}
	})
}

func TestStatusText(t *testing.T) {
	s := status{
		room: "sale", state: "waiting", position: 1234, waiting: 50210, eta: wait{true, 123, 110, 150}, refresh: 12,
		joinedAt: 1767323045000000, message: "",
	}
	const want = `{"room":"sale","state":"waiting","position":1234,"ahead":1233,"waiting":50210,"eta":{"seconds":123,"low":110,"high":150},"refresh_after":12,"joined_at":"2026-01-02T03:04:05.000000Z","message":"","paused":false}`
	if got := string(s.append(nil)); got != want {
		t.Errorf("%s", got)
	}
	s.compat, s.now = true, s.joinedAt
	const compat = `,"cfWaitingRoom":{"inWaitingRoom":true,"waitTimeKnown":true,"waitTime":3,"waitTime25Percentile":2,"waitTime50Percentile":3,"waitTime75Percentile":3,"waitTimeFormatted":"3 minutes","queueIsFull":false,"queueAll":false,"isFIFOQueue":true,"isPassthroughQueue":false,"isRandomQueue":false,"isRejectQueue":false,"lastUpdated":"2026-01-02T03:04:05.000Z","refreshIntervalSeconds":12}}`
	if got := string(s.append(nil)); got != want[:len(want)-1]+compat {
		t.Errorf("%s", got)
	}
}

func TestProblemTable(t *testing.T) {
	codes := map[string]bool{}
	for _, p := range problems {
		if codes[p.code] || p.code == "" || p.title == "" || p.status < 400 || p.status > 599 {
			t.Errorf("%+v", p)
		}
		codes[p.code] = true
		var out map[string]any
		if err := json.Unmarshal(p.append(nil, "", ""), &out); err != nil || out["code"] != p.code || out["status"] != float64(p.status) {
			t.Errorf("%s: %v %v", p.code, out, err)
		}
		if p.status == 503 && p.retry == 0 {
			t.Errorf("%s: 503 without Retry-After", p.code)
		}
	}
}
