package admission

import (
	"slices"
	"sync/atomic"

	"github.com/anteroom/anteroom/admission/snapshot"
)

// beyond is what this process knows of the line and its snapshot does not show. Immutable: every poll asks how many are
// ahead, and waits for nobody. room.mu is held to put another in its place.
type beyond struct {
	snap   *Snapshot
	recent newcomers
	taken  tally     // arrivals signed here that the store was told of
	told   []arrived // those of them that snap does not hold yet
	before *former
}

// change replaces what is known beyond the snapshot.
func (r *Room) change(f func(*beyond)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := *r.beyond.Load()
	f(&b)
	r.beyond.Store(&b)
}

// newcomers are the orders, ascending, that the store has enrolled for this
// process since the snapshot was built: the snapshot does not show them yet,
// and whoever joins after them would be told their place.
type newcomers []int64

// mostNewcomers bounds what one snapshot's time can bring; a longer line is no
// longer counted one by one.
const mostNewcomers = 4096

// with gives the newcomers and those of a batch.
func (n newcomers) with(orders []int64) newcomers {
	if room := mostNewcomers - len(n); len(orders) > room {
		orders = orders[:room]
	}
	all := slices.Concat(n, orders)
	slices.Sort(all)
	return slices.Compact(all)
}

// after gives those that a snapshot of that order time does not hold.
func (n newcomers) after(time int64) newcomers {
	at, _ := slices.BinarySearch(n, time+1)
	return n[at:]
}

// ahead counts those with a smaller order.
func (n newcomers) ahead(order int64) int64 {
	at, _ := slices.BinarySearch(n, order)
	return int64(at)
}

// arrivals counts those that this process has signed a place, by second of their order: a word for a second, which is its
// upper half. Words grow; one is used again for a later second once the store was told of all in it.
type arrivals [8]atomic.Uint64

// tally is what arrivals held at some time.
type tally [len(arrivals{})]uint64

// arrived is a second's arrivals, and the seq under which the store was told of them.
type arrived struct{ seq, second, count int64 }

func (a *arrivals) add(second int64, taken *tally) {
	for i := range int64(len(a)) {
		at := uint64(second+i) % uint64(len(a))
		for {
			w := a[at].Load()
			next := w + 1
			if !sameSecond(w, uint64(second)<<32) {
				if w != taken[at] || w>>32-uint64(second) < 60 { // which is later, but where order time began anew
					break // to the next word
				}
				next = uint64(second)<<32 | 1
			}
			if a[at].CompareAndSwap(w, next) {
				return
			}
		}
	}
	// The store was told of none for so many seconds: when exactly they came is not what matters now.
	a[uint64(second)%uint64(len(a))].Add(1)
}

func (a *arrivals) tally() (t tally) {
	for i := range a {
		t[i] = a[i].Load()
	}
	return t
}

// since gives what word i counted since an earlier tally.
func (t *tally) since(earlier *tally, i int) (second, count int64) {
	w := t[i]
	n := uint32(w)
	if sameSecond(w, earlier[i]) {
		n -= uint32(earlier[i])
	}
	return int64(w >> 32), int64(n)
}

func sameSecond(a, b uint64) bool { return a>>32 == b>>32 }

// untold counts the arrivals before an order that were signed here and that the snapshot does not hold.
func (r *Room) untold(b *beyond, order int64) (n int64) {
	at := order / 1e6
	same := int64(-1) // in the order's own second, without itself
	count := func(second, count int64) {
		switch {
		case second < at:
			n += count
		case second == at:
			same += count
		}
	}
	for _, t := range b.told {
		count(t.second, t.count)
	}
	now := r.arrived.tally()
	for i := range now {
		count(now.since(&b.taken, i))
	}
	if same > 0 {
		n += snapshot.PartOfSecond(same, order, r.signedFrom.Load(), r.Now())
	}
	return n
}

// Ahead is how many are ahead of an order in line (0: next): those enrolled by
// the snapshot or through this gateway since, and those that arrived before it and are not enrolled yet. For 90 s after the store
// lost its data it is counted from the last snapshot before.
func (r *Room) Ahead(order int64) int64 {
	for {
		b := r.beyond.Load()
		s, from := b.snap, r.signedFrom.Load()
		n := s.Ahead(order) + s.Unenrolled(order, from) + b.recent.ahead(order) + max(s.Extrapolated(order), r.untold(b, order))
		if f := b.before; f != nil && r.c.mono() < f.until {
			n = max(n, f.snap.Ahead(order)+f.snap.Unenrolled(order, from)-(s.Admissions-f.base))
		}
		if r.beyond.Load() == b { // else arrivals may have been counted by another's reckoning
			return max(0, n)
		}
	}
}

// sign counts somebody who was signed a place.
func (r *Room) sign(order int64) {
	if last := r.signedLast.Swap(order); order-last > 2e6 {
		r.signedFrom.Store(order)
	}
	r.arrived.add(order/1e6, &r.beyond.Load().taken)
}
