package policy

import (
	"fmt"
	"testing"
)

// timetable is a closed room with a sale at 100–200, a lottery that opens at 400 (pre-queue from 300) and ends at 500, and a second
// closing at 600–700 while the room is open otherwise.
func timetable(method string) Policy {
	p := Policy{Method: method, Rate: 10, MinRate: 5, MaxRate: 20}
	p.Plan = NewPlan([]byte("secret"), "sale", &p, []Event{
		{Name: "closed", Starts: 600, Ends: 700, Method: Reject},
		{Name: "lottery", Gathers: 300, Starts: 400, Ends: 500, Method: Lottery, Rate: 40},
		{Name: "sale", Starts: 100, Ends: 200, Method: FIFO, Rate: 3},
	})
	return p
}

func TestPolicyAt_AppliesTheEventInForce(t *testing.T) {
	p := timetable(Reject)
	for _, row := range []struct {
		now                             int64
		current, next, method           string
		rate, minRate, maxRate, rateNow int64
		opensAt, opens, gathers, closes int64
	}{
		{0, "", "sale", Reject, 10, 5, 20, 0, 0, 100, 0, 200},
		{99, "", "sale", Reject, 10, 5, 20, 0, 0, 100, 0, 200},
		{100, "sale", "lottery", FIFO, 3, 3, 3, 3, 0, 400, 300, 200},
		{199, "sale", "lottery", FIFO, 3, 3, 3, 3, 0, 400, 300, 200},
		{200, "", "lottery", Reject, 10, 5, 20, 0, 0, 400, 300, 500},
		{300, "lottery", "closed", Lottery, 10, 5, 20, 0, 400, 400, 0, 500},
		{400, "lottery", "closed", Lottery, 40, 5, 40, 40, 400, 0, 0, 500},
		{500, "", "closed", Reject, 10, 5, 20, 0, 0, 0, 0, 600},
		{600, "closed", "", Reject, 10, 5, 20, 0, 0, 0, 0, 700},
		{700, "", "", Reject, 10, 5, 20, 0, 0, 0, 0, 0},
	} {
		current, next := p.Plan.Events(row.now)
		name := func(e *Event) string {
			if e == nil {
				return ""
			}
			return e.Name
		}
		q := p.At(row.now)
		opens, gathers := p.NextOpening(row.now)
		got := fmt.Sprint(name(current), "/", name(next), " ", q.Method, " ", q.Rate, q.MinRate, q.MaxRate, p.RateAt(row.now), q.OpensAt, opens, gathers, p.NextClosing(row.now))
		want := fmt.Sprint(row.current, "/", row.next, " ", row.method, " ", row.rate, row.minRate, row.maxRate, row.rateNow, row.opensAt, row.opens, row.gathers, row.closes)
		if got != want {
			t.Errorf("at %d: %s, want %s", row.now, got, want)
		}
		if span := NewSchedule(p).At(row.now); span.Policy.Method != q.Method || span.Policy.Rate != q.Rate {
			t.Errorf("at %d the schedule has %s at %d, the policy %s at %d", row.now, span.Policy.Method, span.Policy.Rate, q.Method, q.Rate)
		}
	}
}

func TestPolicyRates_YieldsEachChange(t *testing.T) {
	p := timetable(FIFO)
	var got []string
	for at, rate := range p.Rates(100) {
		got = append(got, fmt.Sprint(at, ":", rate))
	}
	if fmt.Sprint(got) != "[200:10 300:0 400:40 500:10 600:0 700:10]" {
		t.Error(got)
	}
}

func TestPlan_HasADrawForEachLottery(t *testing.T) {
	p := timetable(FIFO)
	if n := p.Plan.Lotteries(); n != 1 {
		t.Errorf("%d lotteries, want 1", n)
	}
	if d := p.Plan.Draw(400); d == nil || d.Span() != 100 || d != p.Plan.DrawAfter(399) || p.Plan.DrawAfter(400) != nil {
		t.Errorf("%+v, after 399 %+v, after 400 %+v", d, p.Plan.DrawAfter(399), p.Plan.DrawAfter(400))
	}
	if without := NewPlan(nil, "sale", &p, nil); without.Lotteries() != 0 {
		t.Error("a plan without a secret has a draw")
	}
	var none *Plan
	if none.Draw(400) != nil || none.DrawAfter(0) != nil || none.Lotteries() != 0 {
		t.Error("no plan has a draw")
	}
}
