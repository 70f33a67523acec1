package snapshot

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

var errSketch = errors.New("the packed queue is not valid")

// unpacker reads what lua/room_advance.lua packed, and keeps the first error. It does not use msgpack.Unmarshal, which allocates
// memory for as many integers as the header of an array announces, even if few follow.
type unpacker struct {
	*msgpack.Decoder
	left *strings.Reader
	err  error
}

func newUnpacker(packed string) *unpacker {
	r := strings.NewReader(packed)
	return &unpacker{Decoder: msgpack.NewDecoder(r), left: r}
}

// array returns the length of an array. Each member takes at least a byte.
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

// unpack reads the packed part of a snapshot, an array of
//   - the orders of the front, each as the difference to the one before;
//   - the chunks of the sketch (lua/lib/sketch.lua), each packed: gone, came, then order and rank in turn;
//   - the last order of each chunk;
//   - the totals of tickets that entered the queue, were given up or returned, and left it at its front;
//   - the last order, 0 where the front is the whole queue;
//   - for how many more ticks the sketch may be coarser than promised;
//   - Passed and Sample (lua/lib/departures.lua): bucket, present, absent, exposure in turn;
//   - Holds;
//   - the total of revocations;
//   - whether the tick left something to remove.
func (s *Snapshot) unpack(packed string) error {
	u := newUnpacker(packed)
	if n := u.array(); u.err == nil && n != 13 {
		return errSketch
	}
	orders, chunks := u.ints(), u.strings()
	u.ints()
	came, _, gone, tail, rough := u.int(), u.int(), u.int(), u.int(), u.int()
	for _, counts := range []*[]AgeCount{&s.Passed, &s.Sample} {
		all := u.ints()
		if len(all)%4 != 0 {
			return errSketch
		}
		for h := range slices.Chunk(all, 4) {
			*counts = append(*counts, AgeCount{Bucket: h[0], Present: h[1], Absent: h[2], Exposure: h[3]})
		}
	}
	s.Holds = u.ints()
	s.Revocations, s.Backlog = u.int(), u.int() > 0
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
	// Chunks were counted at different ticks. Tickets that left at the front since then are subtracted; tickets that left in the middle may
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
