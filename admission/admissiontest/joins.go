package admissiontest

// joins is a window in which an address or a network takes places.
type joins struct {
	from, places int64
	wasFull      bool // an earlier one was
}

const tenth = 100_000

// places finds the order at which a place of an address hash fits, and how it is counted; not ok where there is none yet.
func (m *Model) places(hash string, order, now int64) (count func(), fits int64, ok bool) {
	if m.P.Joins <= 0 || hash == "" {
		return func() {}, order, true
	}
	fits, ok = order, true
	found := map[string]joins{}
	for _, l := range []struct {
		key       string
		most, per int64
	}{{hash[:9], m.P.Joins, m.P.JoinsPer.Microseconds()}, {hash[9:], m.P.Wide, m.P.WidePer.Microseconds()}} {
		w, known := m.joins[l.key]
		full := known && w.places >= l.most
		till := w.from + l.per + tenth
		switch {
		case !known || order >= till:
			w = joins{from: order, wasFull: w.wasFull || full}
		case full && now < till:
			ok = false
		case full:
			w = joins{from: till, wasFull: true}
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
			m.joins[key] = w
		}
	}, fits, ok
}

func (m *Model) forgetJoins(now int64) {
	before := (now-max(m.P.JoinsPer, m.P.WidePer).Microseconds()-m.P.Absence.Microseconds())/tenth - 1
	for key, w := range m.joins {
		if w.from/tenth < before {
			delete(m.joins, key)
		}
	}
}

// Joined is how many windows are remembered.
func (m *Model) Joined() int { return len(m.joins) }
