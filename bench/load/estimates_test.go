package load

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestEstimates_AreJudgedByTheWaitThatFollowed(t *testing.T) {
	start := time.UnixMicro(1_000_000_000_000)
	admitted := start.Add(100 * time.Second).UnixMicro()
	shown := func(after time.Duration, seconds, low, high float32) shownEstimate {
		return shownEstimate{at: start.Add(after).UnixMicro(), seconds: seconds, low: low, high: high}
	}
	people := []person{
		{admittedAt: admitted, shown: []shownEstimate{
			shown(0, 1, 1, 1),                  // before what is judged
			shown(20*time.Second, 88, 70, 90),  // 80 s: a tenth too much
			shown(60*time.Second, 20, 10, 30),  // 40 s: half of it, and out of the range
			shown(96*time.Second, 40, 40, 400), // under 5 s
		}},
		{admittedAt: admitted, absent: true, shown: []shownEstimate{shown(20*time.Second, 1, 1, 1)}},
		{shown: []shownEstimate{shown(20*time.Second, 1, 1, 1)}}, // still waiting
	}
	e := judgeEstimates(people, start.Add(10*time.Second))
	if e.Count != 2 || math.Abs(e.MAPE-0.3) > 1e-6 || math.Abs(e.Bias+0.2) > 1e-6 || e.InRange != 0.5 {
		t.Errorf("%+v", e)
	}
	var b strings.Builder
	e.line(&b)
	if want := "estimates  2 of waits of 5 s or more: mean absolute error 30.0 %, bias -20.0 %, 50.0 % in range\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}
