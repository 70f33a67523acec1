package console

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/anteroom/anteroom/admission"
)

// standIn is a line in memory: what the console's own rules are tested with.
// core_test.go has the same requests answered by a real room.
type standIn struct {
	mu      sync.Mutex
	id      string
	file    admission.Policy
	snap    admission.Snapshot
	tickets map[admission.ID]admission.Found
	entries []admission.Entry
	down    bool
	stuck   bool // changes do not show up in the snapshot
}

const roomTime = int64(1_800_000_000_000_000)

func newStandIn(id string) *standIn {
	p := admission.Policy{
		Enabled: true, Method: admission.FIFO, Rate: 10_000, Burst: 10_000, Absence: 10 * time.Minute,
		ClaimWindow: 5 * time.Minute, SessionTTL: 5 * time.Minute, OnStoreError: admission.OnErrorWait,
	}
	return &standIn{
		id: id, file: p, tickets: map[admission.ID]admission.Found{},
		snap: admission.Snapshot{Known: true, Epoch: "e1", Policy: p, RoomTime: roomTime, Since: roomTime - 1e9},
	}
}

func (s *standIn) ID() string         { return s.id }
func (s *standIn) Age() time.Duration { return 250 * time.Millisecond }
func (s *standIn) Now() int64         { return roomTime }

func (s *standIn) Snapshot() *admission.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.snap
	c.Live = slices.Clone(c.Live)
	return &c
}

func (s *standIn) write(who, action string, do func(*admission.Snapshot)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return admission.ErrStore
	}
	before, _ := json.Marshal(fullPolicy(s.snap.Policy))
	if !s.stuck {
		do(&s.snap)
		s.snap.Version++
	}
	after, _ := json.Marshal(fullPolicy(s.snap.Policy))
	s.entries = append(s.entries, admission.Entry{At: roomTime / 1e6, Who: who, Room: s.id, Action: action, Before: string(before), After: string(after)})
	return nil
}

func (s *standIn) Patch(_ context.Context, who string, l admission.Live) error {
	return s.write(who, "patch", func(n *admission.Snapshot) { n.Policy, n.Live = overlay(n.Policy, s.file, n.Live, l) })
}

func (s *standIn) Pause(ctx context.Context, who string) error {
	return s.write(who, "pause", func(n *admission.Snapshot) {
		n.Policy, n.Live = overlay(n.Policy, s.file, n.Live, admission.Live{Paused: new(true)})
	})
}

func (s *standIn) Resume(ctx context.Context, who string) error {
	return s.write(who, "resume", func(n *admission.Snapshot) {
		n.Policy, n.Live = overlay(n.Policy, s.file, n.Live, admission.Live{Clear: []string{"paused", "draining"}})
	})
}

func (s *standIn) Drain(ctx context.Context, who string) error {
	return s.write(who, "drain", func(n *admission.Snapshot) {
		n.Policy, n.Live = overlay(n.Policy, s.file, n.Live, admission.Live{Draining: new(true)})
	})
}

func (s *standIn) Reset(_ context.Context, who string) error {
	return s.write(who, "reset", func(n *admission.Snapshot) {
		n.Fence++
		n.Waiting, n.Parked, n.Admitted, n.Active, n.Oldest = 0, 0, 0, 0, 0
	})
}

func (s *standIn) RemoveTicket(_ context.Context, who string, id admission.ID) error {
	if _, err := s.Lookup(context.Background(), id); err != nil {
		return err
	}
	return s.write(who, "remove", func(*admission.Snapshot) { delete(s.tickets, id) })
}

func (s *standIn) RevokeSession(_ context.Context, who string, id admission.ID) error {
	return s.write(who, "revoke", func(*admission.Snapshot) {
		s.tickets[id] = admission.Found{State: admission.Ended, Reason: admission.ReasonRevoked}
	})
}

func (s *standIn) Lookup(_ context.Context, id admission.ID) (admission.Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return admission.Found{}, admission.ErrStore
	}
	f, known := s.tickets[id]
	if !known {
		return f, admission.ErrUnknown
	}
	return f, nil
}

func (s *standIn) History(_ context.Context, minutes int) ([]admission.Minute, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, admission.ErrStore
	}
	list := make([]admission.Minute, minutes)
	for i := range list {
		list[i] = admission.Minute{At: roomTime/1e6 - int64(60*(minutes-i)), Joins: 7 + int64(i*i%11), Admissions: 6 + int64(i%5), Abandoned: 1, Waiting: int64(i), Rate: 2500, WaitP50: 1500 * time.Millisecond, WaitP90: 4 * time.Second}
	}
	return list, nil
}

func (s *standIn) Audit(_ context.Context, limit int) ([]admission.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, admission.ErrStore
	}
	list := slices.Clone(s.entries)
	slices.Reverse(list)
	return list[:min(limit, len(list))], nil
}
