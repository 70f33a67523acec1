package main

// wheel orders tickets by when they are due, to the millisecond and in four bytes each: a list for each spoke, its links
// in the tickets. What is due in a later turn is hung up again when its spoke comes by. Coarser spokes would send polls
// in clumps, which a gateway would ask the store about in one go: a crowd does not come in clumps.
type wheel struct {
	spokes  []int32 // the first ticket of each; -1: none
	turned  uint32  // spokes that have come by
	tickets []ticket
	// Those that are due, the first of them first.
	first, last int32
}

const (
	spokeBits = 0       // of a time in ms that a spoke leaves out
	spokes    = 1 << 17 // two minutes
	nobody    = -1
)

func newWheel(tickets []ticket) *wheel {
	w := &wheel{spokes: make([]int32, spokes), tickets: tickets, first: nobody, last: nobody}
	for i := range w.spokes {
		w.spokes[i] = nobody
	}
	return w
}

// add hangs up a ticket by its due time.
func (w *wheel) add(i int32) {
	t := &w.tickets[i]
	at := max(t.due>>spokeBits, w.turned) % spokes
	t.next = w.spokes[at]
	w.spokes[at] = i
}

// turn moves on to a time, in ms, and lines up what has become due.
func (w *wheel) turn(now uint32) {
	for ; w.turned < now>>spokeBits; w.turned++ {
		at := w.turned % spokes
		i := w.spokes[at]
		w.spokes[at] = nobody
		for i != nobody {
			t := &w.tickets[i]
			next := t.next
			if t.due>>spokeBits > w.turned {
				t.next = w.spokes[at]
				w.spokes[at] = i
			} else {
				w.line(i)
			}
			i = next
		}
	}
}

// line puts a ticket at the end of those that are due.
func (w *wheel) line(i int32) {
	w.tickets[i].next = nobody
	if w.first == nobody {
		w.first = i
	} else {
		w.tickets[w.last].next = i
	}
	w.last = i
}

// take removes the first of those that are due.
func (w *wheel) take() int32 {
	i := w.first
	if w.first = w.tickets[i].next; w.first == nobody {
		w.last = nobody
	}
	return i
}
