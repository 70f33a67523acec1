package snapshot

import "testing"

// OrderAt is the inverse of Ahead, in the front and behind it.
func TestSnapshot_OrderAtInvertsAhead(t *testing.T) {
	t.Parallel()
	s := &Snapshot{Known: true, Waiting: 1000, Time: 9000, Oldest: 10, Front: []int64{10, 20, 30, 40},
		Sketch: []Rank{{Rank: 100, Order: 1000}, {Rank: 100, Order: 1100}, {Rank: 999, Order: 8000}}}
	for _, rank := range []int64{0, 1, 3, 4, 50, 100, 101, 500, 999} {
		if got := s.Ahead(s.OrderAt(rank)); got < rank-1 || got > rank+1 {
			t.Errorf("%d ahead of the order at %d", got, rank)
		}
	}
	if got := s.OrderAt(1000); got != s.Time {
		t.Errorf("behind the last: %d", got)
	}
}
