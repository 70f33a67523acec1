package main

import (
	"testing"

	"pgregory.net/rapid"
)

// Everybody comes up once for each time they were hung up, not before they are due and within a spoke of it, however
// the wheel is turned.
func TestWheelIsPunctual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tickets := make([]ticket, rapid.IntRange(1, 20).Draw(t, "tickets"))
		w := newWheel(tickets)
		hung := map[int32]bool{}
		now := uint32(0)
		for range rapid.IntRange(1, 30).Draw(t, "turns") {
			for i := range tickets {
				if i := int32(i); !hung[i] && rapid.Bool().Draw(t, "hang up") {
					tickets[i].due = now + rapid.SampledFrom([]uint32{0, 1, 15, 16, 17, 1000, 60_000, spokes<<spokeBits - 1, spokes << spokeBits, 3 * spokes << spokeBits}).Draw(t, "after")
					w.add(i)
					hung[i] = true
				}
			}
			now += rapid.SampledFrom([]uint32{0, 1, 16, 900, 61_000, spokes << spokeBits, 4 * spokes << spokeBits}).Draw(t, "turn by")
			w.turn(now)
			for w.first != nobody {
				i := w.take()
				if !hung[i] || tickets[i].due > now {
					t.Fatalf("ticket %d, due at %d, comes up at %d (hung up: %v)", i, tickets[i].due, now, hung[i])
				}
				delete(hung, i)
			}
			for i := range hung {
				if tickets[i].due>>spokeBits < now>>spokeBits {
					t.Fatalf("ticket %d, due at %d, has not come up at %d", i, tickets[i].due, now)
				}
			}
		}
	})
}
