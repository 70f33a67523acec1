package gateway

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestInterval(t *testing.T) {
	p := newPace(10*time.Minute, 20000, 500, 0, 100)
	for _, row := range []struct {
		seconds    int64
		want, most float64
	}{{0, 2, 2}, {3, 2, 2}, {10, 2, 5}, {20, 2, 10}, {50, 5, 25}, {300, 30, 150}, {600, 60, 150}, {7200, 60, 150}} {
		if got, most := p.interval(5, wait{true, row.seconds, 0, 0}); got != row.want || most != row.most {
			t.Errorf("a wait of %d s: %v, at most %v", row.seconds, got, most)
		}
	}
	if got, _ := p.interval(5, wait{}); got != unsureFront {
		t.Errorf("an unknown wait at the front: %v", got)
	}
	if got, _ := p.interval(5000, wait{}); got != unsureRest {
		t.Errorf("an unknown wait farther back: %v", got)
	}
}

// polls is how many polls a second a line makes that does as it is advised, how many at least (as seldom as is allowed), and
// checks each interval. The wait grows evenly from the head to tail seconds at the end; tail 0: nobody knows it.
func polls(t *rapid.T, p *pace, free *pace, waiting int64, tail float64) (sum, least float64) {
	const parts, draws = 3000, 8
	last := 0.0
	for i := range parts {
		at := (float64(i) + .5) / parts
		w := wait{tail > 0, int64(at * tail), 0, 0}
		ahead := int64(at * float64(waiting))
		v, most := p.interval(ahead, w)
		if v < last {
			t.Fatalf("who waits %d s polls more often (%v) than who waits less (%v)", w.seconds, v, last)
		}
		last = v
		if limit := max(shortest, float64(w.seconds)/2); most > p.quarter || w.known && most > limit {
			t.Fatalf("a wait of %d s: at most %v", w.seconds, most)
		}
		if before, _ := free.interval(ahead, w); w.known && float64(w.seconds) <= p.cutoff && v != before {
			t.Fatalf("a wait of %d s, before the cutoff at %v: %v, %v without a budget", w.seconds, p.cutoff, v, before)
		}
		mean := 0.0
		for d := range draws {
			s := spread(v, most, (float64(d)+.5)/draws)
			if float64(s) > most || s < 1 || float64(s) < v*(1-jitter)-1 {
				t.Fatalf("%v s, at most %v, became %d", v, most, s)
			}
			mean += min(max(v*(1-jitter+2*jitter*(float64(d)+.5)/draws), 1), most) / draws
		}
		sum += float64(waiting) / parts / mean
		longest := p.mean(p.quarter, p.quarter)
		if w.known {
			longest = p.mean(p.raised(float64(w.seconds)), p.most(float64(w.seconds)))
		} else if ahead < front {
			longest = unsureFront
		}
		least += float64(waiting) / parts / longest
	}
	return sum, least
}

// Polling as advised keeps every place, misses no turn by more than half of the wait, and holds the budget where these
// two allow it, together with first polls; those who are near wait no longer for it than without a budget.
func TestPaceHoldsTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		absence := time.Duration(rapid.IntRange(180, 3600).Draw(t, "absence")) * time.Second
		budget := rapid.IntRange(100, 50000).Draw(t, "budget")
		waiting := rapid.Int64Range(1, 10_000_000).Draw(t, "waiting")
		arriving := rapid.SampledFrom([]int64{0, 0, 100, 1000, 100_000, 1_000_000}).Draw(t, "arriving")
		tail := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(1, 200_000)).Draw(t, "tail")
		p, free := newPace(absence, budget, waiting, arriving, tail), newPace(absence, 0, waiting, 0, tail)
		sum, least := polls(t, &p, &free, waiting, tail)
		firsts := min(p.first, float64(arriving)/soonest)
		if sum+firsts > float64(budget)*1.05 && sum > least*1.05 {
			t.Fatalf("%v polls/s and %v first ones over a budget of %d, %v were possible", sum, firsts, budget, least)
		}
	})
}

// However fast they arrive, first polls come at the rate that the budget leaves, until the last would be later than a minute.
func TestFirstPollsHoldTheBudget(t *testing.T) {
	for _, row := range []struct {
		name       string
		rate, last int64 // arrivals a second, and for how many seconds
		budget     int
		most       int // first polls in any second
	}{
		{"arrivals within the budget", 5000, 20, 20_000, 8000},
		{"a million in ten seconds", 100_000, 10, 20_000, 24_000},
		{"ten times as many in one", 1_000_000, 1, 20_000, 24_000},
		{"more than a minute can take: as even as can be", 1_000_000, 5, 20_000, 280_000},
	} {
		polled := map[int64]int{}
		var arriving, enrolled int64
		const part = 100 // of a second
		var p pace
		for at := int64(0); at < row.last*part; at++ {
			if at%(part/4) == 0 { // a snapshot
				p = newPace(10*time.Minute, row.budget, enrolled, arriving, float64(enrolled)/10)
			}
			for i := range row.rate / part {
				random := float64(i)*0.6180339887 + float64(at)*0.41421356
				after := p.firstPoll(arriving, wait{}, random-math.Floor(random))
				if after < 1 || after > int(latest) {
					t.Fatalf("%s: the first poll after %d s", row.name, after)
				}
				polled[at/part+int64(after)]++
				arriving++
			}
			due := int64(polled[at/part]) / part
			arriving, enrolled = arriving-due, enrolled+due
		}
		for second, n := range polled {
			if n > row.most {
				t.Errorf("%s: %d first polls in second %d, want at most %d", row.name, n, second, row.most)
			}
		}
	}
	p := newPace(10*time.Minute, 20_000, 0, 1_000_000, 0)
	if v := p.firstPoll(1_000_000, wait{true, 20, 0, 0}, 0.5); v > 10 {
		t.Errorf("who is let in after 20 s polls first after %d", v)
	}
}

func TestSpread(t *testing.T) {
	p := newPace(10*time.Minute, 0, 0, 0, 0)
	for _, row := range []struct{ interval, most float64 }{{20, 150}, {150, 150}, {10, 10}, {2, 2}, {145, 150}} {
		sum, exact := 0.0, 0.0
		const n = 20000
		for i := range n {
			random := float64(i) / n
			s := spread(row.interval, row.most, random)
			if float64(s) < math.Floor(row.interval*0.85) || float64(s) > min(row.most, math.Ceil(row.interval*1.15)) {
				t.Fatalf("%v s became %d", row, s)
			}
			sum += float64(s)
			exact += min(row.interval*(0.85+0.3*random), row.most)
			if f := p.firstPoll(1_000_000, wait{}, random); f < 1 || f > 3 {
				t.Fatalf("without a budget the first poll after %d s", f)
			}
		}
		if want := p.mean(row.interval, row.most); math.Abs(sum/n-want) > want/50 || math.Abs(exact/n-want) > want/1000 {
			t.Errorf("the mean of %v is %v, before it was rounded %v, planned %v", row, sum/n, exact/n, want)
		}
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
