package store_test

import (
	"context"
	"strings"

	"github.com/anteroom/anteroom/bulk/store"
)

// predecessors returns the groups that a new group waits for, and whether it has to wait now.
func (m *Model) predecessors(spec store.GroupSpec) (before []*group, held bool, err error) {
	for id := range strings.FieldsSeq(spec.After) {
		p, err := m.find(id)
		if err != nil {
			return nil, false, refuse(store.CodeInvalid, "no group %q", id)
		}
		before = append(before, p)
	}
	switch starts, decided := met(spec.When, before); {
	case len(before) == 0:
	case decided && !starts:
		return nil, false, refuse(store.CodeState, "group %q could never start", spec.ID)
	case !decided:
		return before, true, nil
	}
	return nil, false, nil
}

// met reports whether a group starts after these groups, once all of them have ended.
func met(when store.When, before []*group) (starts, decided bool) {
	completed := true
	for _, p := range before {
		if !p.Status.Ended() || p.Status == store.Cancelled && !p.swept {
			return false, false
		}
		completed = completed && p.Status == store.Completed
	}
	return when == store.OnEnd || completed == (when != store.OnFailure), true
}

// Resume decides whether a group that waits for others starts.
func (m *Model) Resume(id string) {
	g := m.groups[id]
	if g == nil || !g.held || g.Status.Ended() {
		return
	}
	if starts, decided := met(g.When, g.before); decided {
		g.held = false
		if !starts {
			_, _ = m.Cancel(context.Background(), g.ID)
		}
		m.settle(g)
	}
}
