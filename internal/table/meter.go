package table

// Meter limits the rate of events of each key by GCRA (ITU-T I.371). Where a set is full it forgets the key whose
// allowance is whole again soonest, which then gets it back early. Times are in any unit that the callers agree on.
type Meter struct{ *Table[struct{}] }

// NewMeter returns a Meter that remembers at most size keys.
func NewMeter(size int) Meter { return Meter{New[struct{}](size)} }

// Take counts an event of a key and returns 0; or it counts nothing and returns how long the event has to wait. An event takes up
// an interval, and may come ahead of time by tolerance.
func (m Meter) Take(key uint64, now, interval, tolerance int64) (wait int64) {
	m.Update(key, now, func(_ *struct{}, whole *int64) {
		if wait = *whole - now - tolerance; wait <= 0 {
			*whole, wait = *whole+interval, 0
		}
	})
	return wait
}

// Wait returns the result of Take without counting an event.
func (m Meter) Wait(key uint64, now, tolerance int64) int64 {
	_, whole, ok := m.Get(key, now)
	if !ok {
		return 0
	}
	return max(0, whole-now-tolerance)
}
