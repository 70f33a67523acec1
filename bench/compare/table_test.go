package main

import (
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2}} {
		if got := median(tt.in); got != tt.want {
			t.Errorf("median(%v) = %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	err := printTable(&out, []entry{
		{What: "proxying", Unit: "/s", Nginx: 80_000, HAProxy: 72_345.6, We: 60_000, Bars: []bar{{Limit: 30_000}, {Limit: 0.8, Ratio: true}}},
		{What: "proxying", Unit: "CPU µs", Nginx: 10, We: 12, Bars: []bar{{Limit: 1.25, AtMost: true, Ratio: true}}},
		{What: "mix", Unit: "p99 ms", We: 12.345, Bars: []bar{{Limit: 10, AtMost: true}}},
		{What: "proxying", Unit: "CPU µs", Bars: []bar{{Limit: 1.25, AtMost: true, Ratio: true}}},
	})
	const want = `
median of the rounds   nginx    HAProxy   gateway   ratio to nginx   bar
proxying, /s           80,000   72,346    60,000    0.75             ≥ 30,000 holds; ≥ 0.80 × nginx MISSED
proxying, CPU µs       10       –         12        1.20             ≤ 1.25 × nginx holds
mix, p99 ms            –        –         12.3      –                ≤ 10 MISSED
proxying, CPU µs       –        –         –         –                ≤ 1.25 × nginx
`
	if got := "\n" + out.String(); err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

func TestParseWrk(t *testing.T) {
	const ok = "Running 3s test\n  2 threads\n\nRESULT {\"requests\":3000,\"micros\":3000000,\"p50\":100,\"p99\":2500,\"broken\":0,\"refused\":0}\n"
	if r, err := parseWrk([]byte(ok)); err != nil || r.Requests != 3000 || r.P99 != 2500 {
		t.Errorf("%+v, %v", r, err)
	}
	for name, tt := range map[string]struct{ out, err string }{
		"no result":        {"unable to connect", "no result"},
		"not JSON":         {"\nRESULT {", "EOF"},
		"nothing answered": {"\nRESULT {\"requests\":0,\"micros\":3000000}", "no request was answered"},
		"refusals":         {"\nRESULT {\"requests\":1000,\"micros\":3000000,\"refused\":2}", "2 of 1000 requests failed"},
		"broken":           {"\nRESULT {\"requests\":1000,\"micros\":3000000,\"broken\":2}", "2 of 1000 requests failed"},
	} {
		if _, err := parseWrk([]byte(tt.out)); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", name, err, tt.err)
		}
	}
}
