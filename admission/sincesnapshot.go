package admission

import (
	"slices"
	"sync/atomic"
)

// sinceSnapshot is what this process knows of the line and its snapshot does not show. Immutable: every poll asks how many are
// ahead, and waits for nobody. room.mu is held to put another in its place.
type sinceSnapshot struct {
	snap   *Snapshot
	recent newcomers
	taken  tally     // arrivals signed here that the store was told of
	told   []arrived // those of them that snap does not hold yet
	before *former
}

// change replaces what is known beyond the snapshot.
func (r *view) change(f func(*sinceSnapshot)) {
	r.changing.Lock()
	defer r.changing.Unlock()
	b := *r.sinceSnapshot.Load()
	f(&b)
	r.sinceSnapshot.Store(&b)
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

// sign counts somebody who was signed a place.
func (r *view) sign(order int64) {
	if last := r.signedLast.Swap(order); order-last > 2e6 {
		r.signedFrom.Store(order)
	}
	r.arrived.add(order/1e6, &r.sinceSnapshot.Load().taken)
}

// former is the last snapshot before an epoch change.
type former struct {
	snap  *Snapshot
	until int64 // mono
	base  int64 // admissions of the new epoch when it began
}
