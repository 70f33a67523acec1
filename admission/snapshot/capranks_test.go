package snapshot

import "testing"

// A new snapshot shows no ticket a larger rank than the one before, except for visitors who joined since, although its samples and its
// front are more exact.
func TestCapRanks_ShownRanksDoNotGrow(t *testing.T) {
	snapshot := func(came int64, front []int64, sketch ...Rank) *Snapshot {
		return &Snapshot{Known: true, Epoch: "1.a", Waiting: 16, Came: came, Front: front, Sketch: sketch}
	}
	short := []int64{10, 20, 30, 40, 50, 60, 70, 80, 90, 100}
	old := snapshot(7, short, Rank{11, 1000, 7}, Rank{13, 2000, 7}, Rank{15, 3000, 7})
	for _, c := range []struct {
		name string
		s    *Snapshot
		want map[int64]int64
	}{
		{"the same", snapshot(7, short, Rank{12, 1000, 7}, Rank{14, 1500, 7}, Rank{15, 2000, 7}, Rank{15, 3000, 7}), map[int64]int64{100: 9, 1000: 11, 1500: 12, 2000: 13, 3000: 15}},
		{"fewer", snapshot(7, short, Rank{9, 1000, 7}, Rank{10, 2000, 7}, Rank{11, 3000, 7}), map[int64]int64{100: 9, 1000: 9, 2000: 10, 3000: 11}},
		{"one joined", snapshot(8, short, Rank{13, 1000, 8}, Rank{15, 2000, 8}, Rank{16, 3000, 8}), map[int64]int64{1000: 12, 2000: 14, 3000: 16}},
		{"nearer", snapshot(7, append(short[:10:10], 200, 500, 700, 1000), Rank{15, 3000, 7}), map[int64]int64{100: 9, 1000: 11, 3000: 15}},
	} {
		c.s.CapRanks(old)
		for order, want := range c.want {
			if n := c.s.Ahead(order); n != want {
				t.Errorf("%s: order %d has rank %d, want %d", c.name, order, n, want)
			}
		}
	}
	reset := snapshot(7, short, Rank{13, 1000, 7}, Rank{15, 3000, 7})
	reset.Epoch = "2.b"
	reset.CapRanks(old)
	if n := reset.Ahead(1000); n != 13 {
		t.Errorf("in another epoch: %d", n)
	}
}
