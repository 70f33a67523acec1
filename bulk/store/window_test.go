package store

import (
	"strings"
	"testing"
	"time"
)

func TestWindow_GrantsTheRateOfItsLength(t *testing.T) {
	s, c := open(t, func(set *Settings) {
		set.Limiter, set.Window, set.Global = "fixed_window", 10*time.Second, 2
		set.Types = map[string]TypeLimit{"slow": {Rate: 0.5}}
	})
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 30)
	create(t, s, GroupSpec{ID: "slow", Tenant: "acme", Type: "slow", Level: High})
	add(t, s, "slow", 0, 12)
	count := func(jobs []Leased) (n [2]int) {
		for _, j := range jobs {
			if j.Type == "slow" {
				n[1]++
			} else {
				n[0]++
			}
		}
		return n
	}
	for _, row := range []struct {
		after time.Duration
		want  [2]int // of the group, of the slow one
	}{
		{3 * time.Second, [2]int{15, 5}},
		{6999 * time.Millisecond, [2]int{}},
		{time.Millisecond, [2]int{15, 5}},
		{10 * time.Second, [2]int{0, 2}},
	} {
		c.advance(row.after)
		if got := count(pull(t, s, 100).Jobs); got != row.want {
			t.Errorf("%s on: %v jobs start, want %v", row.after, got, row.want)
		}
	}
	clean(t, s)
}

func TestWindow_OutOfRange(t *testing.T) {
	s, _ := open(t, nil)
	for _, d := range []time.Duration{-time.Second, time.Second - 1, time.Minute + 1} {
		set := Defaults()
		set.Window = d
		if err := s.Configure(set); err == nil || !strings.Contains(err.Error(), "rate.window") {
			t.Errorf("%s: %v", d, err)
		}
	}
}
