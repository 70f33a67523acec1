package admission

import "testing"

// A queue that a burst of arrivals has made empties at the rate of the last seconds, even while the last minute has had more arrivals
// than admissions.
func TestPace_EmptiesAfterBurst(t *testing.T) {
	var p pace
	s := Snapshot{RedisTime: 1_700_000_000e6}
	step := func(joins, admissions int64) {
		s.RedisTime += 1e6
		s.Joins, s.Admissions = s.Joins+joins, s.Admissions+admissions
		s.Waiting += joins - admissions
		p.add(&s)
	}
	step(0, 0)
	step(300, 0)
	if r := p.rates(&s); r.EmptyIn != 0 {
		t.Errorf("while only arrivals are known: empty in %d s, want never", r.EmptyIn)
	}
	for range 12 {
		step(0, 10)
	}
	if r := p.rates(&s); r.EmptyIn != 18 {
		t.Errorf("180 wait and 10 a second are admitted: empty in %d s, want 18", r.EmptyIn)
	}
	for range 60 {
		step(9, 10)
	}
	if r := p.rates(&s); r.EmptyIn != 120 {
		t.Errorf("120 wait and leave at 1/s over a minute: empty in %d s, want 120", r.EmptyIn)
	}
}
