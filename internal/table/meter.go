package table

// Meter limits the rate of events of each key by GCRA (ITU-T I.371). In a full set it forgets the key whose
// allowance would be whole again first; that key gets its allowance back early. Times are in any unit that the callers agree on.
type Meter struct{ *Table[struct{}] }

// NewMeter returns a Meter that remembers at most size keys.
func NewMeter(size int) Meter { return Meter{New[struct{}](size)} }

// Take counts an event of a key and returns 0; or it counts nothing and returns how long the event has to wait. Each event uses
// an interval, and may come early by tolerance.
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
