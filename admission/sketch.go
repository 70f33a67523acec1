package admission

import (
	"cmp"
	"errors"
	"slices"
	"sort"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

var errSketch = errors.New("the packed line makes no sense")

// unpacker reads what lua/room_advance.lua packed, and keeps the first error. (msgpack.Unmarshal makes room for as many
// integers as an array says that it has, however few follow.)
type unpacker struct {
	*msgpack.Decoder
	left *strings.Reader
	err  error
}

func newUnpacker(packed string) *unpacker {
	r := strings.NewReader(packed)
	return &unpacker{Decoder: msgpack.NewDecoder(r), left: r}
}

// array gives the length of an array, of whose members each takes a byte at least.
func (u *unpacker) array() int {
	n, err := u.DecodeArrayLen()
	if err == nil && (n < 0 || n > u.left.Len()) {
		err = errSketch
	}
	if u.err = cmp.Or(u.err, err); u.err != nil {
		return 0
	}
	return n
}

func (u *unpacker) int() int64 {
	if u.err != nil {
		return 0
	}
	n, err := u.DecodeInt64()
	u.err = err
	return n
}

func (u *unpacker) ints() []int64 {
	all := make([]int64, u.array())
	for i := range all {
		all[i] = u.int()
	}
	return all
}

func (u *unpacker) strings() []string {
	all := make([]string, u.array())
	for i := range all {
		if u.err == nil {
			all[i], u.err = u.DecodeString()
		}
	}
	return all
}

// unpack reads front and sketch: an array of the orders of the front, each less the one before; of the sketch's chunks
// (lua/lib/sketch.lua), each packed: gone, came, then order and rank in turn; and of their last orders; then of how many
// tickets were put into the line since the room began, were given up or given back, and left the line at its head; and of
// the last order, 0 where the front is the whole line; and of how many ticks yet the sketch may be coarser than it should;
// and, as lua/lib/leavers.lua has them, of Heads and Sample (bucket, present, absent, exposure in turn) and of Holds; and of
// revocations since the room began, and whether the tick left something to drop.
func (s *Snapshot) unpack(packed string) error {
	u := newUnpacker(packed)
	if n := u.array(); u.err == nil && n != 13 {
		return errSketch
	}
	orders, chunks := u.ints(), u.strings()
	u.ints()
	came, _, gone, tail, rough := u.int(), u.int(), u.int(), u.int(), u.int()
	for _, counts := range []*[]AgeCount{&s.Heads, &s.Sample} {
		all := u.ints()
		if len(all)%4 != 0 {
			return errSketch
		}
		for h := range slices.Chunk(all, 4) {
			*counts = append(*counts, AgeCount{Bucket: h[0], Present: h[1], Absent: h[2], Exposure: h[3]})
		}
	}
	s.Holds = u.ints()
	s.revokes, s.backlog = u.int(), u.int() > 0
	if u.err != nil {
		return u.err
	}
	if len(s.Holds) > len(orders) {
		return errSketch
	}
	s.Came, s.Gone, s.rough = came, gone, rough > 0
	s.Front = orders
	var edge int64
	for i, d := range orders {
		if d < 0 || edge+d < edge {
			return errSketch
		}
		edge += d
		s.Front[i] = edge
	}
	// Chunks were counted at different ticks. Who left the head since is taken off; others who left in the middle may
	// make a newer rank smaller than an older one before it.
	least := int64(len(s.Front)) - 1
	for _, text := range chunks {
		u := newUnpacker(text)
		chunk := u.ints()
		if u.err != nil {
			return u.err
		}
		if len(chunk) < 2 || len(chunk)%2 != 0 {
			return errSketch
		}
		for i := 2; i < len(chunk); i += 2 {
			order, rank := chunk[i], chunk[i+1]-(gone-chunk[0])
			if order <= edge {
				continue
			}
			least = min(max(least, rank), s.Waiting)
			edge = order
			s.Sketch = append(s.Sketch, Rank{Rank: least, Order: order, came: chunk[1]})
		}
	}
	if tail > edge {
		s.Sketch = append(s.Sketch, Rank{Rank: max(least, s.Waiting-1), Order: tail, came: came})
	}
	return nil
}

// follow sees to it that nobody is told a larger rank than old told them, but for those who joined since: a knot that
// is set anew, and the exact front, know better than what was read off between the knots before.
func (s *Snapshot) follow(old *Snapshot) {
	if !old.Known || old.Epoch != s.Epoch || old.Fence != s.Fence || len(old.Sketch) == 0 || old.rough || s.Came < old.Came {
		return
	}
	// most is the largest rank that an order may be told.
	most := func(order int64) int64 {
		rank, came := old.told(order)
		return rank + s.Came - came
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
