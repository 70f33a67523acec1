package rig

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDo_StopsInReverseOrder ends a run in the middle.
func TestDo_StopsInReverseOrder(t *testing.T) {
	failed := errors.New("failed")
	var order []int
	dir := ""
	err := Do(t.Context(), &bytes.Buffer{}, func(r *Run) {
		dir = r.Dir
		r.Cleanup(func() { order = append(order, 1) })
		r.Cleanup(func() { order = append(order, 2) })
		Check(failed)
		t.Error("the run goes on after an error")
	})
	if !errors.Is(err, failed) || !slices.Equal(order, []int{2, 1}) {
		t.Errorf("%v, %v", err, order)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary directory: %v", err)
	}
}

func TestSumOf_SelectsByLabels(t *testing.T) {
	const page = "# HELP x y\nanteroom_requests_total{outcome=\"proxied\",room=\"open\"} 5\nanteroom_requests_total{outcome=\"proxied\",room=\"line\"} 7\nanteroom_requests_total{outcome=\"let_in\",room=\"open\"} 1e+06\ngo_goroutines 42\n"
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"anteroom_requests_total", []string{`outcome="proxied"`, `room="open"`}, 5},
		{"anteroom_requests_total", []string{`room="open"`}, 1_000_005},
		{"go_goroutines", nil, 42},
	} {
		if n, err := sumOf(strings.NewReader(page), tt.name, tt.labels...); n != tt.want || err != nil {
			t.Errorf("%s %v: %v, %v; want %v", tt.name, tt.labels, n, err, tt.want)
		}
	}
	if _, err := sumOf(strings.NewReader(page), "anteroom_requests_total", `room="shut"`); err == nil {
		t.Error("a missing label is no error")
	}
	if _, err := sumOf(strings.NewReader("anteroom_x five\n"), "anteroom_x"); err == nil {
		t.Error("a sample that is not a number is no error")
	}
}
