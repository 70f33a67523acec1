package admission

import (
	"fmt"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/short"
)

func TestJoinLimiter_CountsAndForgets(t *testing.T) {
	short.SkipRace(t, "makes its calls one after another")
	t.Parallel()
	p := &Policy{Joins: 3, JoinsPer: time.Minute, Wide: 5, WidePer: time.Hour}
	who := func(address, network int) string { return fmt.Sprintf("address%02dnetwork%02d", address, network) }
	var s joinLimiter
	if wait, _ := s.join("", p, 0); wait != 0 || s.table.Load() != nil {
		t.Error("a join without an address is counted")
	}
	minute := int64(time.Minute)
	for i, row := range []struct {
		hash   string
		now    int64
		wait   time.Duration
		reason string
	}{
		{who(1, 1), 0, 0, ""}, {who(1, 1), 1, 0, ""}, {who(1, 1), 2, 0, ""}, {who(1, 1), minute / 2, time.Minute / 2, ReasonAddress},
		{who(2, 1), minute / 2, 0, ""}, {who(2, 1), minute / 2, 0, ""}, {who(2, 1), minute / 2, time.Hour - time.Minute/2, ReasonNetwork},
		{who(1, 1), minute, time.Hour - time.Minute, ReasonNetwork}, {who(1, 2), minute, 0, ""}, {who(1, 1), 60 * minute, 0, ""},
	} {
		if wait, reason := s.join(row.hash, p, row.now); wait != row.wait || reason != row.reason {
			t.Errorf("%d: %v %q, want %v %q", i, wait, reason, row.wait, row.reason)
		}
	}
	s.block("ticket", 100)
	if got := s.blocked("ticket", 40); got != 60 {
		t.Errorf("blocked for %d, want 60", got)
	}
	if s.blocked("ticket", 100) != 0 || s.blocked("another", 0) != 0 {
		t.Error("blocked for longer than that, or by another")
	}
	// The table is bounded, however many addresses join; an address that is counted now stays for a while.
	for i := range 10 * joinWindowsMost {
		s.join(fmt.Sprintf("flood%013dnetwork%011d", i, i), p, 61*minute)
	}
	if wait, _ := s.join(who(3, 3), p, 61*minute); wait != 0 {
		t.Error("joins of other addresses count against this one")
	}
}
