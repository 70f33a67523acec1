// Package board makes the public board of a room: how many wait, how many were admitted, how long they waited, and what the room
// publishes. A board is the same for everybody, is made from the newest snapshot without the store, and is kept for a second.
//
// Reading order: board.go (figures and their delay), render.go (JSON and HTML).
package board

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/facts"
)

// Values of the setting board.
const (
	Off     = "off"
	On      = "on"
	Delayed = "delayed"
)

// Delay is the age of the figures of a delayed board.
const Delay = time.Minute

// Lottery is what a board shows of a draw.
type Lottery struct {
	OpensAt    string `json:"opens_at"` // RFC 3339
	Commitment string `json:"commitment"`
}

// Situation is what a board shows besides figures.
type Situation struct {
	State   string // open, waiting, prequeue, paused, closed
	Reason  string // paused, draining, closed, sold_out, store; empty: none
	Facts   *facts.View
	Lottery *Lottery
	Age     time.Duration // of the data
}

// figures are the numbers of a board at one time.
type figures struct {
	at       time.Time
	waiting  int64
	admitted int64
	rate     float64 // admissions a second over the last minute
	waits    []int64 // seconds: the median, and what 90 % did not exceed, of those admitted in the last five minutes; nil: nobody
}

// Board is the board of one room. It keeps the figures of the last minute.
type Board struct {
	Room string

	mu   sync.Mutex
	past []figures // ascending
	kept map[key]rendered
}

// Sample notes the figures of a snapshot, for a board that shows them later.
func (b *Board) Sample(s *admission.Snapshot, now time.Time) {
	f := read(s, now)
	b.mu.Lock()
	defer b.mu.Unlock()
	first := 0
	for first+1 < len(b.past) && now.Sub(b.past[first+1].at) >= Delay {
		first++
	}
	b.past = append(b.past[first:], f)
}

// shown returns the figures that a board shows, nil while a delayed one has none; mu is held.
func (b *Board) shown(delayed bool, s *admission.Snapshot, now time.Time) *figures {
	if !delayed {
		f := read(s, now)
		return &f
	}
	var latest *figures
	for i := range b.past {
		if now.Sub(b.past[i].at) < Delay {
			break
		}
		latest = &b.past[i]
	}
	if latest == nil {
		return nil
	}
	f := *latest
	f.waiting, f.admitted, f.rate = round(f.waiting), round(f.admitted), float64(round(int64(math.Round(f.rate))))
	f.waits = slices.Clone(f.waits)
	for i := range f.waits {
		f.waits[i] = (f.waits[i] + 59) / 60 * 60
	}
	return &f
}

// round rounds to two digits.
func round(n int64) int64 {
	unit := int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return (n + unit/2) / unit * unit
}

// rateSeconds is the time over which the rate is measured.
const rateSeconds = 60

func read(s *admission.Snapshot, now time.Time) figures {
	f := figures{at: now, waiting: s.Waiting + s.Parked, admitted: s.Admissions}
	second := s.RoomTime / 1e6
	var n int64
	for i := len(s.Flow) - 1; i >= 0 && s.Flow[i].Second > second-rateSeconds; i-- {
		n += s.Flow[i].Admitted
	}
	f.rate = math.Round(float64(n)/rateSeconds*10) / 10
	f.waits = waits(s.Passed)
	return f
}

// waits returns the median and the 90th percentile of the times in the queue of those who were admitted, in seconds. The counts fade
// with 300 s, so they are those of about the last five minutes.
func waits(passed []admission.AgeCount) []int64 {
	var all int64
	for _, c := range passed {
		all += c.Present
	}
	if all < 500 { // half a visitor: counts are in thousandths
		return nil
	}
	out := make([]int64, 0, 2)
	for _, share := range []int64{50, 90} {
		left := (all*share + 99) / 100
		for _, c := range passed {
			if left -= c.Present; left <= 0 {
				out = append(out, int64(math.Round(math.Exp2((float64(c.Bucket)+.5)/4)-1)))
				break
			}
		}
	}
	return out
}
