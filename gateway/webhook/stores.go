package webhook

import (
	"cmp"
	"strconv"
	"time"

	"github.com/anteroom/anteroom/admission/outbox"
)

// lostAfter is how long the store of a room must be away before it counts as lost.
const lostAfter = 3 * time.Second

// outage is the time without the store of one room.
type outage struct {
	room  string
	since time.Time
	epoch string
	n     string // outages of the room before this one
	lost  *event // nil: it is short so far
	left  []string
	tries int
	next  time.Time // when the endpoints in left are tried again
	back  bool
}

// stores watches the stores of the rooms of this gateway. While a store is away there is no queue, so each gateway sends the event itself;
// it has the same id on all.
type stores struct {
	outages map[string]*outage
	known   map[string]string // number of outages by room, as recorded
	epochs  map[string]string
}

func newStores() *stores {
	return &stores{outages: map[string]*outage{}, known: map[string]string{}, epochs: map[string]string{}}
}

func outagesField(room string) string { return join("outages", room) }

// learn takes the recorded numbers of outages.
func (s *stores) learn(rooms []Room, recorded map[string]string) {
	for i := range rooms {
		id := rooms[i].ID
		if n, asked := recorded[outagesField(id)]; asked {
			n = cmp.Or(n, "0")
			s.known[id] = n
		}
	}
}

// watch begins and ends outages.
func (s *stores) watch(now time.Time, rooms []Room, endpoints []Endpoint) {
	there := map[string]bool{}
	for i := range rooms {
		r := &rooms[i]
		there[r.ID] = true
		o := s.outages[r.ID]
		if r.Up {
			if r.Snapshot.Known {
				s.epochs[r.ID] = r.Snapshot.Epoch
			}
			switch {
			case o == nil:
			case o.lost == nil:
				delete(s.outages, r.ID)
			default:
				o.back = true
			}
			continue
		}
		n, known := s.known[r.ID]
		if !known { // never reached: no event of this room could be told from another
			continue
		}
		if o == nil {
			o = &outage{room: r.ID, since: now, epoch: s.epochs[r.ID], n: n}
			s.outages[r.ID] = o
		}
		o.back = false
		if o.lost == nil && now.Sub(o.since) >= lostAfter {
			o.lost = &event{StoreLost, r.ID, now, map[string]any{"since": stamp(o.since)}, []string{o.epoch, o.n}}
			o.left = wanting(endpoints, StoreLost, r.ID)
		}
	}
	for id := range s.outages {
		if !there[id] { // removed from the configuration
			delete(s.outages, id)
		}
	}
}

// due returns the outages whose event is to be sent now.
func (s *stores) due(now time.Time) (all []*outage) {
	for _, o := range s.outages {
		if o.lost != nil && !o.back && len(o.left) > 0 && !now.Before(o.next) {
			all = append(all, o)
		}
	}
	return all
}

// returned returns for each outage that is over the changes that record its end. They happen on the first gateway that sends them, and queue
// the event of the beginning for the endpoints that did not get it from that gateway.
func (s *stores) returned(now time.Time, endpoints []Endpoint) (notes []outbox.Change, rooms []string) {
	for _, o := range s.outages {
		if !o.back {
			continue
		}
		field, before := outagesField(o.room), o.n
		if len(o.left) > 0 {
			between := o.n + "+"
			notes = append(notes, outbox.Change{Field: field, Expected: o.n, Initial: "0", Value: between, ID: o.lost.id(), Body: o.lost.body(), Endpoints: o.left})
			before = between
		}
		n, _ := strconv.ParseInt(o.n, 10, 64)
		away := now.Sub(o.since).Round(time.Millisecond).Seconds()
		back := event{StoreBack, o.room, now, map[string]any{"since": stamp(o.since), "away_seconds": away}, []string{o.epoch, o.n}}
		notes = append(notes, outbox.Change{
			Field: field, Expected: before, Initial: "0", Value: strconv.FormatInt(n+1, 10),
			ID: back.id(), Body: back.body(), Endpoints: wanting(endpoints, StoreBack, o.room),
		})
		rooms = append(rooms, o.room)
	}
	return notes, rooms
}

// recorded ends the outages of these rooms.
func (s *stores) recorded(rooms []string) {
	for _, id := range rooms {
		delete(s.outages, id)
	}
}
