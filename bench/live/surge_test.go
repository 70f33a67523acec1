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
	report := func(change func(*load.CrowdReport)) load.CrowdReport {
		r := load.CrowdReport{Visitors: 30, Admitted: 30, Admissions: []int64{999_000_000}}
		for i := range int64(29) { // ideal: 0.145 s
			r.Admissions = append(r.Admissions, 1_000_000_000+(i+1)*5_000)
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
		{"15 overtaken", report(func(r *load.CrowdReport) { r.Order.OvertakenLong = 15 }), ""},
		{"16 overtaken", report(func(r *load.CrowdReport) { r.Order.OvertakenLong = 16 }), "16 visitors were overtaken"},
		{"a lost place", report(func(r *load.CrowdReport) { r.Lost = table.Causes{"lapsed": 1} }), "1 places were lost"},
		{"not admitted", report(func(r *load.CrowdReport) { r.Admitted = 29 }), "1 visitors were not admitted"},
		{"too slow", report(func(r *load.CrowdReport) { r.Admissions[29] = 1_000_190_000 }), "1.31 times"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var text strings.Builder
			err := judge(tt.r, &text, changed)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if !strings.Contains(text.String(), "of them before the change") {
				t.Errorf("printed\n%s", text.String())
			}
		})
	}
}
