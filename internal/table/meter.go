package table

import "time"

// Meter limits how often something happens for each key, by GCRA (ITU-T I.371). It forgets the key whose allowance is whole
// again soonest where a set is full, so at most a limit is then reached later than it would be.
type Meter struct{ table *Table[struct{}] }

// NewMeter returns a Meter that remembers at most size keys.
func NewMeter(size int) *Meter { return &Meter{New[struct{}](size)} }

// Key returns the key of b in this meter.
func (m *Meter) Key(b []byte) uint64 { return m.table.Key(b) }

// Quota allows N events in each period Per, all of them at once if there were none before.
type Quota struct {
	N   int64
	Per time.Duration
}

// times returns the time that one event takes up, and how far ahead of time events may be.
func (q Quota) times() (interval, tolerance time.Duration) {
	interval = max(1, q.Per/time.Duration(q.N))
	return interval, max(0, q.Per-interval)
}

// Take counts an event of a key at a time, and returns 0; or it counts nothing, and returns how long the event has to wait.
func (m *Meter) Take(key uint64, now time.Duration, q Quota) (wait time.Duration) {
	interval, tolerance := q.times()
	m.table.Update(key, int64(now), func(_ *struct{}, whole *int64) {
		if wait = time.Duration(*whole) - now - tolerance; wait <= 0 {
			*whole, wait = *whole+int64(interval), 0
		}
	})
	return wait
}

// Wait returns what Take would, and counts nothing.
func (m *Meter) Wait(key uint64, now time.Duration, q Quota) time.Duration {
	_, tolerance := q.times()
	_, whole, ok := m.table.Get(key, int64(now))
	if !ok {
		return 0
	}
	return max(0, time.Duration(whole)-now-tolerance)
}
