package admission

import (
	"errors"
	"slices"
	"sort"

	"github.com/vmihailenco/msgpack/v5"
)

// packedLine is what lua/room_advance.lua packs of a line, an array.
type packedLine struct {
	_msgpack struct{} `msgpack:",as_array"` //nolint:unused // it tells the decoder

	Orders []int64  // of the front, each less the one before
	Chunks []string // of the sketch (lua/lib/sketch.lua), each packed: gone, came, then order and rank in turn
	Ends   []int64  // the last order of each chunk
	Came   int64    // tickets put into the line since the room began
	Left   int64    // tickets that were given up or given back
	Gone   int64    // and such as left the line at its head
	Tail   int64    // the last order; 0 where the front is the whole line
}

var errSketch = errors.New("the packed line makes no sense")

// unpack reads front and sketch.
func (s *Snapshot) unpack(packed string) error {
	var l packedLine
	if err := msgpack.Unmarshal([]byte(packed), &l); err != nil {
		return err
	}
	s.came = l.Came
	s.Front = l.Orders
	var edge int64
	for i, d := range l.Orders {
		if d < 0 {
			return errSketch
		}
		edge += d
		s.Front[i] = edge
	}
	// Chunks were counted at different ticks. Who left the head since is taken off; others who left in the middle may
	// make a newer rank smaller than an older one before it.
	least := int64(len(s.Front)) - 1
	for _, text := range l.Chunks {
		var chunk []int64
		if err := msgpack.Unmarshal([]byte(text), &chunk); err != nil {
			return err
		}
		if len(chunk) < 2 || len(chunk)%2 != 0 {
			return errSketch
		}
		for i := 2; i < len(chunk); i += 2 {
			order, rank := chunk[i], chunk[i+1]-(l.Gone-chunk[0])
			if order <= edge {
				continue
			}
			least = min(max(least, rank), s.Waiting)
			edge = order
			s.Sketch = append(s.Sketch, Rank{Rank: least, Order: order, came: chunk[1]})
		}
	}
	if l.Tail > edge {
		s.Sketch = append(s.Sketch, Rank{Rank: max(least, s.Waiting-1), Order: l.Tail, came: l.Came})
	}
	return nil
}

// follow sees to it that nobody is told a larger rank than old told them, but for those who joined since: a knot that
// is set anew, and the exact front, know better than what was read off between the knots before.
func (s *Snapshot) follow(old *Snapshot) {
	if !old.Known || old.Epoch != s.Epoch || old.Fence != s.Fence || len(old.Sketch) == 0 || s.came < old.came {
		return
	}
	// most is the largest rank that an order may be told.
	most := func(order int64) int64 {
		rank, came := old.told(order)
		return rank + s.came - came
	}
	tail := old.Sketch[len(old.Sketch)-1].Order
	for i := range s.Sketch {
		if k := &s.Sketch[i]; k.Order <= tail {
			k.Rank = min(k.Rank, most(k.Order))
		}
	}
	// Only who was behind the front, or had a ceiling there, can have been told less than is true.
	from := len(s.Front)
	if n := len(old.Front); n > 0 {
		from = sort.Search(from, func(i int) bool { return s.Front[i] > old.Front[n-1] })
	}
	note := func(i int) {
		if rank := most(s.Front[i]); rank < int64(i) {
			s.ceilings = append(s.ceilings, Rank{Rank: rank, Order: s.Front[i]})
		}
	}
	for _, c := range old.ceilings {
		if i, ok := slices.BinarySearch(s.Front, c.Order); ok && i < from {
			note(i)
		}
	}
	for i := from; i < len(s.Front) && s.Front[i] <= tail; i++ {
		note(i)
	}
}

// ceiling is the rank that an order of the front may have at most.
func (s *Snapshot) ceiling(order, rank int64) int64 {
	if len(s.ceilings) == 0 {
		return rank
	}
	i, ok := slices.BinarySearchFunc(s.ceilings, order, func(r Rank, order int64) int { return int(r.Order - order) })
	if !ok {
		return rank
	}
	return min(rank, s.ceilings[i].Rank)
}
