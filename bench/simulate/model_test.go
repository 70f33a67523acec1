package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/admission"
)

// flat is a calibration in which everything costs one of its unit, so that an outcome counts operations.
func flat() *Calibration {
	one := Script{Call: Cost{CPU: 10, Commands: 3}, Item: Cost{CPU: 1, Commands: 2}}
	size := Size{Bytes: 150, Seen: one, Enrol: one, Tick: Cost{CPU: 1000, Commands: 100}, Read: Cost{CPU: 10, Commands: 5}}
	c := &Calibration{Claim: one, Beat: one, Admission: Cost{CPU: 5, Commands: 4}, Gone: 300, RedisBase: 1e6}
	for _, n := range []float64{1e3, 1e6} {
		size.Waiting = n
		c.Sizes = append(c.Sizes, size)
	}
	c.Gateway = Gateway{Idle: 1000, Polls: []PollCost{{100, 60}, {10_000, 10}}, Join: 10, Sign: 2, Claim: 4, Pass: 15, Base: 30e6, Ticket: 48, Connection: 5000,
		PollIn: 500, PollOut: 700, TokenOut: 600, JoinIn: 400, JoinOut: 900}
	return c
}

func sale(waiting, rate float64) Room {
	return Room{Waiting: waiting, Rate: rate, Arrivals: rate, Absence: 10 * time.Minute, Claim: 5 * time.Minute, Budget: 20_000, Visit: 5 * time.Minute, TTL: 5 * time.Minute, Cores: 2}
}

func TestCrowd_CountsPolls(t *testing.T) {
	for _, tt := range []struct {
		name                         string
		room                         Room
		tail, polls, front, renewals [2]float64 // from, to
	}{
		// 100,000 at 10/s: the front's 1,000 wait up to 100 s and poll every 2 to 10 s; nearly all others wait over ten
		// minutes and poll every minute, and every fourth of these polls renews.
		{"a minute for nearly all", sale(100_000, 10), [2]float64{10_000, 10_000}, [2]float64{1900, 2100}, [2]float64{240, 310}, [2]float64{430, 450}},
		// Over the budget the far end polls less often, at most every quarter of absence.
		{"the budget is reached", sale(2_000_000, 200), [2]float64{10_000, 10_000}, [2]float64{18_000, 22_000}, [2]float64{900, 1100}, [2]float64{5_500, 6_700}},
		{"all are at the front", sale(800, 4), [2]float64{200, 200}, [2]float64{100, 140}, [2]float64{100, 140}, [2]float64{0, 0.001}},
		{"nobody is admitted", sale(1000, 0), [2]float64{}, [2]float64{}, [2]float64{}, [2]float64{}},
		{"nobody waits", sale(0, 10), [2]float64{}, [2]float64{}, [2]float64{}, [2]float64{}},
	} {
		c := tt.room.crowd()
		for _, x := range []struct {
			name string
			got  float64
			want [2]float64
		}{{"tail", c.tail, tt.tail}, {"polls", c.polls, tt.polls}, {"front", c.front, tt.front}, {"renewals", c.renewals, tt.renewals}} {
			if x.got < x.want[0] || x.got > x.want[1] {
				t.Errorf("%s: %s %.1f, want %v to %v", tt.name, x.name, x.got, x.want[0], x.want[1])
			}
		}
	}
}

// The visitors draw their polling intervals and are checked as a gateway does.
func TestRenewals_AgreeWithPlayedVisitors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := admission.Policy{
			Absence:     time.Duration(rapid.Int64Range(180, 3600).Draw(t, "absence")) * time.Second,
			ClaimWindow: time.Duration(rapid.Int64Range(60, 900).Draw(t, "claim window")) * time.Second,
		}
		most := p.LongestPoll().Seconds()
		interval := min(rapid.Float64Range(2, 300).Draw(t, "interval"), most)
		wait := rapid.Float64Range(20, 10_000).Draw(t, "wait")
		dice := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		next := func() float64 { return min(interval*(0.85+0.3*dice.Float64()), most) }
		sum := 0.0
		const rounds = 3000
		for range rounds {
			step := next()
			hold, age := p.Hold(seconds(step), seconds(wait), false).Seconds(), step
			for step = next(); age+step+10 <= hold; step = next() {
				age += step
			}
			sum += age
		}
		if got, want := renewal(&p, interval, wait), sum/rounds; math.Abs(got-want) > 0.2*want {
			t.Fatalf("every %.1f s with %.0f s to go: worked out %.1f, played %.1f", interval, wait, got, want)
		}
	})
}

// A million who wait for two hours are checked some 5,500 times a second: the front with each poll, each of the others every 206 s. That is the same with two gateways and eight, since each token carries its own presence hold.
func TestRenewals_KeepRateForMillion(t *testing.T) {
	for _, gateways := range []int{2, 8} {
		r := sale(1_000_000, 1_000_000/7200.)
		r.Gateways = gateways
		o := r.Outcome(flat())
		if all := o.Front + o.Renewals; all < 5500 || all > 5560 || o.Renewals < 4800 || o.Renewals > 4880 {
			t.Errorf("%d gateways: %.0f checks a second at the front and %.0f behind it", gateways, o.Front, o.Renewals)
		}
	}
}

func TestBatches_WaitForOthers(t *testing.T) {
	for _, tt := range []struct{ requests, wait, want float64 }{
		{0, nearWait, 0},
		{10, nearWait, 9.9},
		{1000, nearWait, 500},      // as many come within a batch as lie between two
		{1000, farWait, 111.1},     // eight more company
		{10_000_000, farWait, 2e4}, // full batches
	} {
		if got := batches(tt.requests, tt.wait); math.Abs(got-tt.want) > 0.01*tt.want+0.001 {
			t.Errorf("%v a second, %v s: %v batches, want %v", tt.requests, tt.wait, got, tt.want)
		}
	}
}

// However many gateways race, a tick is done once, at least every 250 ms and not sooner than its gap allows.
func TestTicks_SkipGap(t *testing.T) {
	if ticks(1) != 4 || ticks(2) != 4 || math.Abs(ticks(8)-1/0.1875) > 1e-9 {
		t.Errorf("%v, %v, %v ticks a second", ticks(1), ticks(2), ticks(8))
	}
	for g := 1; g < 300; g++ {
		if n := ticks(g); n < 4-1e-9 || n > 1/tickGap+1e-9 {
			t.Errorf("%d gateways: %v ticks a second", g, n)
		}
	}
}

func TestOutcome_AddsUp(t *testing.T) {
	r := sale(100_000, 10)
	r.Gateways, r.Requests = 1, 0.2
	c := flat()
	cr := r.crowd()
	o := r.Outcome(c)
	near, far, ten := batches(cr.front, nearWait), batches(cr.renewals, farWait), batches(10, nearWait)
	beats := 3000 * 4 / 300.0
	calls := near + far + 2*ten + 4 + 4 // enrolments and claims; heartbeats and ticks
	items := cr.front + cr.renewals + 20 + beats
	for _, x := range []struct {
		name      string
		got, want float64
	}{
		{"scripts", o.Calls, calls},
		{"commands", o.Commands, 3*(calls-4) + 2*items + 4*100 + 10*4},
		{"Redis CPU", o.RedisCPU, (10*(calls-4) + items + 4*1000 + 10*5) / 1e6},
		{"Redis memory", o.RedisMem, 1e6 + 100_000*150 + (3000+10*1500)*300},
		{"gateway CPU", o.CPU, (1000 + cr.polls*c.Gateway.poll(cr.polls) + cr.renewals*2 + 10*(10+2+c.Gateway.poll(cr.polls+10)) + 40 + 600*15) / 1e6},
		{"gateway memory", o.Memory, 30e6 + 100_000*48 + 256*5000},
		{"visitors' bytes in", o.In, cr.polls*500 + 10*900},
	} {
		if math.Abs(x.got-x.want) > 1e-6*x.want {
			t.Errorf("%s: %v, want %v", x.name, x.got, x.want)
		}
	}
	r.Direct = true
	if d := r.Outcome(c); d.Connected < 99_000 || d.Memory < o.Memory+99_000*4900 {
		t.Errorf("with the visitors' own connections: %v of them, %v bytes", d.Connected, d.Memory)
	}
}

// More people take more memory and poll no less, the store's work is far below a check for each poll, gateways are as many as their plan
// allows and no more, and a longer absence spares the store.
func TestOutcome_IsPlausible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := flat()
		within := rapid.Float64Range(600, 20_000).Draw(t, "within")
		n := math.Floor(math.Exp(rapid.Float64Range(math.Log(100), math.Log(1e7)).Draw(t, "waiting (log)")))
		r := sale(n, n/within)
		r.Absence = time.Duration(rapid.IntRange(180, 3600).Draw(t, "absence")) * time.Second
		r.Budget = rapid.IntRange(1000, 100_000).Draw(t, "budget")
		o := r.Outcome(c)
		more := r
		more.Waiting, more.Rate, more.Arrivals = 1.5*n, 1.5*r.Rate, 1.5*r.Arrivals
		m := more.Outcome(c)
		if m.RedisMem < o.RedisMem || m.Polls < 0.85*o.Polls { // a budget that is reached keeps polls where they are
			t.Fatalf("half as many again cost less: %+v, then %+v", o, m)
		}
		if checks := o.Front + o.Renewals; checks > o.Polls*1.0001 || o.Renewals > n/30*1.0001 {
			t.Fatalf("%v checks of %v polls, %v of them renewals of %v places", checks, o.Polls, o.Renewals, n)
		}
		if o.CPU > gatewayShare*r.Cores*float64(o.Gateways) || o.Gateways < 2 {
			t.Fatalf("%d gateways for %v cores", o.Gateways, o.CPU)
		}
		fewer := r
		fewer.Gateways = o.Gateways - 1
		if f := fewer.Outcome(c); o.Gateways > 2 && f.CPU < 0.9*gatewayShare*r.Cores*float64(f.Gateways) {
			t.Fatalf("%d gateways, though %v cores would do for %d", o.Gateways, f.CPU, f.Gateways)
		}
		longer := r
		longer.Absence *= 2
		if l := longer.crowd(); l.renewals > o.Renewals*1.001 {
			t.Fatalf("twice the absence: %v renewals, then %v", o.Renewals, l.renewals)
		}
	})
}

func TestCalibration_Interpolates(t *testing.T) {
	c := flat()
	c.Sizes[1].Bytes, c.Sizes[1].Seen.Item.CPU = 140, 4
	for _, tt := range []struct{ waiting, bytes, item float64 }{
		{10, 150, 1}, {1e3, 150, 1}, {31_622.8, 145, 2.5}, {1e6, 140, 4}, {1e7, 140, 5},
	} {
		if s := c.at(tt.waiting); math.Abs(s.Bytes-tt.bytes) > 0.01 || math.Abs(s.Seen.Item.CPU-tt.item) > 0.01 {
			t.Errorf("%v: %v bytes, %v µs an item; want %v, %v", tt.waiting, s.Bytes, s.Seen.Item.CPU, tt.bytes, tt.item)
		}
	}
	c.Sizes[1].Tick.CPU = 900 // by chance
	if s := c.at(1e8); s.Tick.CPU != 900 || s.Seen.Item.CPU != 4 {
		t.Errorf("beyond the last size: %+v", s)
	}
	for rate, want := range map[float64]float64{1: 60, 100: 60, 1000: 35, 10_000: 10, 1e6: 10} {
		if got := c.Gateway.poll(rate); math.Abs(got-want) > 1e-9 {
			t.Errorf("a poll of %v/s: %v µs, want %v", rate, got, want)
		}
	}
}

func TestLoadCalibration_ReadsFile(t *testing.T) {
	if got, err := loadCalibration(save(t, flat())); err != nil || !reflect.DeepEqual(got, flat()) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := loadCalibration(save(t, &Calibration{})); err == nil {
		t.Error("a calibration without sizes was read")
	}
	if c, err := loadCalibration(""); err != nil || len(c.Sizes) < 4 {
		t.Errorf("the measured calibration: %+v, %v", c, err)
	}
}

// save writes a calibration to a file and returns its path.
func save(t *testing.T, c *Calibration) string {
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommand_PrintsTables(t *testing.T) {
	path := save(t, flat())
	for _, tt := range []struct {
		args string
		want []string
		err  string
	}{
		{args: "", want: []string{"10,000,000", "The opening", "behind a balancer"}},
		{args: "--calibration " + path, want: []string{"10,000,000", "The opening", "behind a balancer"}},
		{args: "--calibration " + path + " --direct --waiting 5000", want: []string{"5,000", "own connections"}},
		{args: "--absence 1m", err: "--absence 1m"},
		{args: "--calibration /nonexistent", err: "/nonexistent"},
	} {
		cmd := command()
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs(strings.Fields(tt.args))
		err := cmd.Execute()
		if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) || tt.err == "" && err != nil {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.err)
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", tt.args, want, &out)
			}
		}
	}
}
