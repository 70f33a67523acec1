package admission_test

import "github.com/anteroom/anteroom/admission/policy"

// joinWindow is a window of time in which an address or a network takes places.
type joinWindow struct {
	from, places int64
	wasFull      bool // an earlier window was full
}

// joinWindows holds the newest window of each address and network.
type joinWindows map[string]joinWindow

const tenth = 100_000

// find returns the order at which a place of an address hash fits, and a function that counts the place. ok is false if the
// address or its network has no place left now.
func (j joinWindows) find(p *policy.Policy, hash string, order, now int64) (count func(), fits int64, ok bool) {
	if p.Joins <= 0 || hash == "" {
		return func() {}, order, true
	}
	fits, ok = order, true
	found := joinWindows{}
	for _, l := range []struct {
		key       string
		most, per int64
	}{{hash[:9], p.Joins, p.JoinsPer.Microseconds()}, {hash[9:], p.Wide, p.WidePer.Microseconds()}} {
		w, known := j[l.key]
		full := known && w.places >= l.most
		till := w.from + l.per + tenth
		switch {
		case !known || order >= till:
			w = joinWindow{from: order, wasFull: w.wasFull || full}
		case full && now < till:
			ok = false
		case full:
			w = joinWindow{from: till, wasFull: true}
		}
		if w.wasFull {
			fits = max(fits, w.from)
		}
		w.places++
		w.from -= w.from % tenth
		found[l.key] = w
	}
	return func() {
		for key, w := range found {
			j[key] = w
		}
	}, fits, ok
}

// forget removes the windows before which no order can count any more.
func (j joinWindows) forget(p *policy.Policy, now int64) {
	before := (now-max(p.JoinsPer, p.WidePer).Microseconds()-p.Absence.Microseconds())/tenth - 1
	for key, w := range j {
		if w.from/tenth < before {
			delete(j, key)
		}
	}
}

// Joined returns the number of windows that are remembered.
func (m *Model) Joined() int { return len(m.joins) }
