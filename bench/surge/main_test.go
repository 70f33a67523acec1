package main

import (
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bench/load"
	"github.com/anteroom/anteroom/bench/table"
)

func TestJudge_FindsBrokenPromises(t *testing.T) {
	changed := time.UnixMicro(1_000_000_000)
	o := options{raised: 10, overtaken: 1, longest: 1.3}
	report := func(change func(*load.CrowdReport)) load.CrowdReport {
		r := load.CrowdReport{Visitors: 30, Admitted: 30, Admissions: []int64{999_000_000}}
		for i := range int64(29) { // ideal: 2.9 s
			r.Admissions = append(r.Admissions, 1_000_000_000+(i+1)*100_000)
		}
		if change != nil {
			change(&r)
		}
		return r
	}
	for _, tt := range []struct {
		name string
		r    load.CrowdReport
		want string // in the error
	}{
		{"kept", report(nil), ""},
		{"one overtaken", report(func(r *load.CrowdReport) { r.Order.OvertakenLong = 1 }), ""},
		{"two overtaken", report(func(r *load.CrowdReport) { r.Order.OvertakenLong = 2 }), "2 visitors were overtaken"},
		{"a lost place", report(func(r *load.CrowdReport) { r.Lost = table.Causes{"lapsed": 1} }), "1 places were lost"},
		{"not admitted", report(func(r *load.CrowdReport) { r.Admitted = 29 }), "1 visitors were not admitted"},
		{"too slow", report(func(r *load.CrowdReport) { r.Admissions[29] = 1_003_800_000 }), "1.31 times"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var text strings.Builder
			err := judge(tt.r, &text, o, changed)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if !strings.Contains(text.String(), "of them before the change") {
				t.Errorf("printed\n%s", text.String())
			}
		})
	}
}
