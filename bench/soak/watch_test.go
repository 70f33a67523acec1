package main

import (
	"strings"
	"testing"
)

func TestJudge_FindsGrowth(t *testing.T) {
	run := func(figure int, from, to float64) []string {
		var all []sample
		for i := range 40 {
			s := sample{}
			for f := range s {
				s[f] = 100
			}
			s[figure] = from
			if i >= 20 {
				s[figure] = to
			}
			all = append(all, s)
		}
		return judge(&strings.Builder{}, all)
	}
	for _, tt := range []struct {
		name     string
		figure   int
		from, to float64
		grown    bool
	}{
		{"flat", rss, 100, 100, false},
		{"a tenth and 16 MB", rss, 100, 126, false},
		{"more", rss, 100, 127, true},
		{"goroutines", goroutines, 1000, 1151, true},
		{"files", files, 1000, 1150, false},
		{"the heap comes and goes", heap, 10, 100, false},
		{"less", rss, 200, 50, false},
	} {
		if got := run(tt.figure, tt.from, tt.to); len(got) > 0 != tt.grown {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if got := judge(&strings.Builder{}, make([]sample, 3)); len(got) == 0 {
		t.Error("a run without samples passes")
	}
}
