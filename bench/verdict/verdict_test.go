package verdict

import (
	"testing"

	"pgregory.net/rapid"
)

func TestJudgeRate_ComparesEveryInterval(t *testing.T) {
	const ms = 1000
	spread := func(n int, step int64) (at []int64) {
		for i := range n {
			at = append(at, 7_000_000+int64(i)*step)
		}
		return at
	}
	tests := []struct {
		name        string
		at          []int64
		rate, burst Milli
		most        int
		excess      float64
		kept        bool
	}{
		{name: "nobody", rate: 5000, burst: 5000, kept: true},
		{name: "burst at once", at: spread(5, 0), rate: 5000, burst: 5000, most: 5, kept: true},
		{name: "one more than the burst at once", at: spread(6, 0), rate: 5000, burst: 5000, most: 6, excess: 1},
		{name: "burst, then the rate", at: append(spread(5, 0), 7_200_000, 7_400_000, 7_600_000, 7_800_000, 8_000_000), rate: 5000, burst: 5000, most: 10, kept: true},
		{name: "burst, then the rate a microsecond early", at: append(spread(5, 0), 7_199_999), rate: 5000, burst: 5000, most: 6, excess: 0.000005},
		{name: "eleven in a second", at: spread(11, 100*ms), rate: 5000, burst: 5000, most: 11, excess: 1},
		{name: "exactly the rate for long", at: spread(100, 200*ms), rate: 5000, burst: 1000, most: 6, kept: true},
		{name: "a fifth too fast for long", at: spread(100, 180*ms), rate: 5000, burst: 5000, most: 6, excess: 100 - 99*0.18*5 - 5},
		{name: "out of order input", at: []int64{3_000_000, 1_000_000, 2_000_000}, rate: 1000, burst: 1000, most: 2, kept: true},
		{name: "three decimals", at: spread(3, 2000*ms), rate: 500, burst: 1000, most: 1, kept: true},
		{name: "rate 0", at: spread(1, 0), rate: 0, burst: 0, most: 1, excess: 1},
		{name: "no rate known", at: spread(500, 0), rate: -1, most: 500, kept: true},
		{name: "both ends of the second count", at: []int64{0, Second}, rate: -1, most: 2, kept: true},
		{name: "a microsecond more than a second", at: []int64{0, Second + 1}, rate: -1, most: 1, kept: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := JudgeRate(tt.at, tt.rate, tt.burst)
			if r.MaxInSecond != tt.most || r.Kept() != tt.kept || abs(r.Excess-tt.excess) > 1e-9 {
				t.Errorf("fullest second %d, excess %v, kept %v; want %d, %v, %v", r.MaxInSecond, r.Excess, r.Kept(), tt.most, tt.excess, tt.kept)
			}
		})
	}
}

func abs(x float64) float64 { return max(x, -x) }

func TestToMilli_RefusesMoreThanThreeDecimals(t *testing.T) {
	for _, tt := range []struct {
		in   float64
		want Milli
		ok   bool
	}{
		{5, 5000, true}, {0, 0, true}, {0.125, 125, true}, {2.001, 2001, true}, {0.0001, 0, false}, {-1, 0, false}, {1e8, 0, false},
	} {
		got, err := ToMilli(tt.in)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("ToMilli(%v) = %v, %v", tt.in, got, err)
		}
	}
}

func TestJudgeOrder_ComparesEveryPair(t *testing.T) {
	in := func(order, at int64) Admission {
		return Admission{Ordered: true, Order: order, At: at, Answered: order}
	}
	gone := func(a Admission) Admission { a.Absent = true; return a }
	atOnce := func(sent, at int64) Admission { return Admission{Sent: sent, Answered: sent + 1, At: at} }
	tests := []struct {
		name       string
		all        []Admission
		inversions int64
		overtaken  int
		jumps      int64
		equal      int
		together   int
	}{
		{name: "nobody"},
		{name: "in order", all: []Admission{in(1, 10), in(2, 11), in(3, 12)}},
		{name: "reported in another sequence", all: []Admission{in(3, 12), in(1, 10), in(2, 11)}},
		{name: "two swapped", all: []Admission{in(1, 11), in(2, 10)}, inversions: 1, overtaken: 1},
		{name: "the last one first", all: []Admission{in(1, 11), in(2, 12), in(3, 10)}, inversions: 2, overtaken: 2},
		{name: "reversed", all: []Admission{in(1, 13), in(2, 12), in(3, 11), in(4, 10)}, inversions: 6, overtaken: 3},
		{name: "admitted together", all: []Admission{in(1, 10), in(2, 10), in(3, 10)}, together: 2},
		{name: "equal orders either way", all: []Admission{in(1, 11), in(1, 10), in(2, 12)}, equal: 1},
		{name: "equal orders overtaken by a later one", all: []Admission{in(1, 11), in(1, 12), in(2, 10)}, inversions: 2, overtaken: 2, equal: 1},
		{name: "an absent one is passed over", all: []Admission{gone(in(1, 12)), in(2, 10), in(3, 11)}},
		{name: "an absent one may not pass others", all: []Admission{in(1, 12), gone(in(2, 10))}, inversions: 1, overtaken: 1},
		{name: "at once before there was a queue", all: []Admission{atOnce(1, 1), in(5, 9)}},
		{name: "at once past a waiting one", all: []Admission{in(5, 9), atOnce(7, 8)}, jumps: 1},
		{name: "at once with the one who waited", all: []Admission{in(5, 8), atOnce(7, 8)}},
		{name: "at once while the other's join was under way", all: []Admission{in(5, 9), atOnce(5, 8)}},
		{name: "at once past an absent one", all: []Admission{gone(in(5, 9)), atOnce(7, 8)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := JudgeOrder(tt.all)
			if o.Inversions != tt.inversions || o.Overtaken != tt.overtaken || o.Queuejumps != tt.jumps || o.Equal != tt.equal || o.Together != tt.together {
				t.Errorf("got %+v", o)
			}
			if o.Kept() != (tt.inversions == 0 && tt.jumps == 0) {
				t.Errorf("Kept() = %v with %+v", o.Kept(), o)
			}
		})
	}
}

func TestJudgeOrder_CountsLongOvertaking(t *testing.T) {
	in := func(order, at int64) Admission { return Admission{Ordered: true, Order: order, At: at} }
	gone := in(1, 700_000)
	gone.Absent = true
	for _, tt := range []struct {
		name  string
		all   []Admission
		long  int
		worst float64
	}{
		{"in order", []Admission{in(1, 0), in(2, 900_000)}, 0, 0},
		{"half a second", []Admission{in(1, 500_000), in(2, 0)}, 0, 0.5},
		{"longer", []Admission{in(1, 500_001), in(2, 0)}, 1, 0.500001},
		{"by one much later in the order", []Admission{in(1, 2_000_000), in(2, 1_900_000), in(3, 1_900_000), in(4, 1_000_000)}, 3, 1},
		{"absent visitors count", []Admission{gone, in(2, 0)}, 1, 0.7},
		{"equal orders do not overtake each other", []Admission{in(1, 900_000), in(1, 0)}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if o := JudgeOrder(tt.all); o.OvertakenLong != tt.long || o.OvertakenMost != tt.worst {
				t.Errorf("%d overtaken by more than half a second, at worst by %v s; want %d, %v", o.OvertakenLong, o.OvertakenMost, tt.long, tt.worst)
			}
		})
	}
}

// The definitions compare every pair and every interval.
func TestJudge_AgreesWithDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Admission {
			small := rapid.Int64Range(0, 12)
			sent := small.Draw(t, "sent")
			return Admission{
				At: small.Draw(t, "at"), Order: small.Draw(t, "order"), Ordered: rapid.Bool().Draw(t, "ordered"),
				Absent: rapid.Bool().Draw(t, "absent"), Sent: sent, Answered: sent + small.Draw(t, "took"),
			}
		}), 0, 30).Draw(t, "all")
		var inversions, jumps int64
		var at []int64
		for _, a := range all {
			at = append(at, a.At*300_000)
			for _, b := range all {
				if a.Absent || !a.Ordered || b.At >= a.At {
					continue
				}
				if b.Ordered && b.Order > a.Order {
					inversions++
				}
				if !b.Ordered && a.Answered < b.Sent {
					jumps++
				}
			}
		}
		if o := JudgeOrder(all); o.Inversions != inversions || o.Queuejumps != jumps {
			t.Fatalf("got %+v; want %d inversions, %d queue jumps", o, inversions, jumps)
		}

		rate, burst := Milli(rapid.Int64Range(0, 20_000).Draw(t, "rate")), Milli(rapid.Int64Range(0, 5000).Draw(t, "burst"))
		kept := true
		for _, from := range at {
			for _, to := range at {
				n := int64(0)
				for _, x := range at {
					if from <= x && x <= to {
						n++
					}
				}
				if to >= from && n*1000*Second > int64(rate)*(to-from)+int64(burst)*Second {
					kept = false
				}
			}
		}
		if r := JudgeRate(at, rate, burst); r.Kept() != kept {
			t.Fatalf("got %+v; want kept %v", r, kept)
		}
	})
}
