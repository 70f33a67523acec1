package main

import (
	"os"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	run := func(figure int, from, to float64) []string {
		var all []sample
		for i := range 40 {
			s := sample{}
			for f := range s.v {
				s.v[f] = 100
			}
			s.v[figure] = from
			if i >= 20 {
				s.v[figure] = to
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

func TestReadMetrics(t *testing.T) {
	g, h, err := readMetrics(strings.NewReader("# HELP go_goroutines x\ngo_goroutines 42\nother{a=\"b\"} 1\ngo_memstats_heap_inuse_bytes 1.048576e+07\n"))
	if g != 42 || h != 10 || err != nil {
		t.Errorf("%v goroutines, %v MB, %v", g, h, err)
	}
	for _, bad := range []string{"", "go_goroutines 42\n", "go_goroutines x\n"} {
		if _, _, err := readMetrics(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestResidentMB(t *testing.T) {
	if mb, err := residentMB([]byte("Name:\tx\nVmHWM:\t 99999 kB\nVmRSS:\t   20480 kB\nThreads:\t3\n")); mb != 20 || err != nil {
		t.Errorf("%v MB, %v", mb, err)
	}
	if _, err := residentMB([]byte("Name:\tx\n")); err == nil {
		t.Error("a status without VmRSS was read")
	}
	if own, err := os.ReadFile("/proc/self/status"); err == nil {
		if mb, err := residentMB(own); mb < 1 || err != nil {
			t.Errorf("of this process: %v MB, %v", mb, err)
		}
	}
}
