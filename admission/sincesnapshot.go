package admission

import (
	"slices"
	"sync/atomic"
)

// sinceSnapshot holds the changes of the queue that this process knows and the snapshot does not show. It is immutable, so that
// polls read it without a lock.
type sinceSnapshot struct {
	snap   *Snapshot
	recent newcomers
	taken  tally     // what arrivals counted when it was last sent to the store
	sent   []arrived // counts that the store got and snap does not include yet
	before *former
}

// change replaces sinceSnapshot by a changed copy.
func (r *view) change(f func(*sinceSnapshot)) {
	r.changing.Lock()
	defer r.changing.Unlock()
	b := *r.sinceSnapshot.Load()
	f(&b)
	r.sinceSnapshot.Store(&b)
}

// newcomers are the orders, ascending, that the store has enrolled for this process since the snapshot. Without them the next
// visitors would be shown the same position.
type newcomers []int64

// mostNewcomers limits the newcomers of one snapshot; further ones are not counted.
const mostNewcomers = 4096

// with returns the newcomers and those of a batch.
func (n newcomers) with(orders []int64) newcomers {
	if room := mostNewcomers - len(n); len(orders) > room {
		orders = orders[:room]
	}
	all := slices.Concat(n, orders)
	slices.Sort(all)
	return slices.Compact(all)
}

// after returns the newcomers that a snapshot of that order time does not hold.
func (n newcomers) after(time int64) newcomers {
	at, _ := slices.BinarySearch(n, time+1)
	return n[at:]
}

// ahead returns the number of newcomers before an order.
func (n newcomers) ahead(order int64) int64 {
	at, _ := slices.BinarySearch(n, order)
	return int64(at)
}

// arrivals counts the places that this process signed, by second of their order: one word a second, with the second in its upper
// half. A word is used for a later second once all that it counts was sent to the store.
type arrivals [8]atomic.Uint64

// tally is a copy of arrivals.
type tally [len(arrivals{})]uint64

// arrived is the count of a second, and the seq of the call that sent it.
type arrived struct{ seq, second, count int64 }

func (a *arrivals) add(second int64, taken *tally) {
	for i := range int64(len(a)) {
		at := uint64(second+i) % uint64(len(a))
		for {
			w := a[at].Load()
			next := w + 1
			if !sameSecond(w, uint64(second)<<32) {
				if w != taken[at] || w>>32-uint64(second) < 60 { // later, unless order time began anew
					break // to the next word
				}
				next = uint64(second)<<32 | 1
			}
			if a[at].CompareAndSwap(w, next) {
				return
			}
		}
	}
	// Nothing was sent to the store for eight seconds; the exact second of a place does not matter then.
	a[uint64(second)%uint64(len(a))].Add(1)
}

func (a *arrivals) tally() (t tally) {
	for i := range a {
		t[i] = a[i].Load()
	}
	return t
}

// since returns the second of word i and what it counted since an earlier tally.
func (t *tally) since(earlier *tally, i int) (second, count int64) {
	w := t[i]
	n := uint32(w)
	if sameSecond(w, earlier[i]) {
		n -= uint32(earlier[i])
	}
	return int64(w >> 32), int64(n)
}

func sameSecond(a, b uint64) bool { return a>>32 == b>>32 }

// sign counts a place that this process signed.
func (r *view) sign(order int64) {
	if last := r.signedLast.Swap(order); order-last > 2e6 {
		r.signedFrom.Store(order)
	}
	r.arrived.add(order/1e6, &r.sinceSnapshot.Load().taken)
}

// former is the last snapshot before the store lost its data.
type former struct {
	snap  *Snapshot
	until int64 // mono
	base  int64 // admissions of the new epoch when it began
}
