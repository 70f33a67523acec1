package route

import (
	"strings"
	"testing"
)

// BenchmarkLocate compares the slowest paths with a plain one. All are as long as a target or the input of an expression may be.
func BenchmarkLocate(b *testing.B) {
	tab, err := New([]Rule{
		rule("all", []string{"*"}, []string{"/"}), rule("sale", []string{"*"}, []string{"/sale"}),
	})
	if err != nil {
		b.Fatal(err)
	}
	patterns, err := New([]Rule{
		rule("one", []string{"*"}, []string{"~sale$"}), rule("two", []string{"*"}, []string{`~/item/\d+`}),
	})
	if err != nil {
		b.Fatal(err)
	}
	fill := func(piece string, n int) []byte { return []byte("/" + strings.Repeat(piece, n/len(piece))) }
	for _, row := range []struct {
		name string
		tab  *Table
		path []byte
	}{
		{"plain", tab, fill("abcdefg/", 64)},
		{"plain 8 KiB", tab, fill("abcdefg/", 8000)},
		{"slashes, parameters, escapes", tab, fill("a%2fb;c//d", 8000)},
		{"escaped dots", tab, fill("a%2e%2e/%2e%2e%2f../", 8000)},
		{"parameters and backslashes", tab, fill("a;b%5cc%00", 8000)},
		{"hosts", tab, append([]byte("/"), fill("/", 8000)...)},
		{"two patterns, 2 KiB", patterns, fill("saleitem/", patternMax-2)},
		{"two patterns, 8 readings", patterns, fill("a%2fb;c%5cd", patternMax/9)},
	} {
		b.Run(row.name, func(b *testing.B) {
			var r Readings
			b.ReportAllocs()
			for b.Loop() {
				row.tab.Locate([]byte("shop.test"), row.path, &r)
			}
		})
	}
}

// BenchmarkBypassUserAgent matches the longest User-Agent with many parts.
func BenchmarkBypassUserAgent(b *testing.B) {
	rules, err := NewBypass([]BypassRule{{UserAgents: strings.Split("googlebot bingbot yandex duckduckbot baidu applebot monitor probe", " ")}})
	if err != nil {
		b.Fatal(err)
	}
	agent := []byte(strings.Repeat("googlebo", 2000))
	b.ReportAllocs()
	for b.Loop() {
		rules[0].matchesAgent(agent)
	}
}
