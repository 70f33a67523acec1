package table

import (
	"strings"
	"testing"
)

func TestMedian_TakesSmallerMiddle(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2}} {
		if got := Median(tt.in); got != tt.want {
			t.Errorf("Median(%v) = %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestQuantile_SelectsByRank(t *testing.T) {
	var all []int
	for i := 100; i > 0; i-- {
		all = append(all, i)
	}
	for q, want := range map[float64]int{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		if got := Quantile(all, q); got != want {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	few := []int{3, 1, 2}
	for q, want := range map[float64]int{0: 1, 0.5: 2, 0.99: 3, 1: 3} {
		if got := Quantile(few, q); got != want {
			t.Errorf("quantile %v of three: %v, want %v", q, got, want)
		}
	}
	if got := Quantile([]int{}, 0.99); got != 0 {
		t.Errorf("of none: %v", got)
	}
}

func TestPrint_ComparesWithBars(t *testing.T) {
	var out strings.Builder
	err := Print(&out, []string{"nginx", "HAProxy"}, "gateway", []Row{
		{What: "proxying", Unit: "/s", Peers: []float64{80_000, 72_345.6}, Ours: 60_000, Bars: []Bar{{Limit: 30_000}, {Limit: 0.8, Ratio: true}}},
		{What: "proxying", Unit: "CPU µs", Peers: []float64{10}, Ours: 12, Bars: []Bar{{Limit: 1.25, AtMost: true, Ratio: true}}},
		{What: "mix", Unit: "p99 ms", Ours: 12.345, Bars: []Bar{{Limit: 10, AtMost: true}}},
		{What: "proxying", Unit: "CPU µs", Bars: []Bar{{Limit: 1.25, AtMost: true, Ratio: true}}},
		{What: "mix", Unit: "errors", Counted: true, Bars: []Bar{{AtMost: true}}},
		{What: "slow", Unit: "errors", Counted: true, Ours: 3, Bars: []Bar{{AtMost: true}}},
	})
	const want = `
median of the rounds   nginx    HAProxy   gateway   ratio to nginx   to HAProxy   bar
proxying, /s           80,000   72,346    60,000    0.75             0.83         ≥ 30,000 holds; ≥ 0.80 × nginx MISSED
proxying, CPU µs       10       –         12        1.20             –            ≤ 1.25 × nginx holds
mix, p99 ms            –        –         12.3      –                –            ≤ 10 MISSED
proxying, CPU µs       –        –         –         –                –            ≤ 1.25 × nginx
mix, errors            –        –         0         –                –            ≤ 0 holds
slow, errors           –        –         3         –                –            ≤ 0 MISSED
`
	if got := "\n" + out.String(); err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}
