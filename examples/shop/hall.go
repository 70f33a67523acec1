package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	rows       = 14
	rowSeats   = 24
	maxPerSale = 6
)

// Refusals of a purchase. Customers read them.
var (
	errTaken   = errors.New("one of these seats has just been sold: choose another")
	errSoldOut = errors.New("there are not enough seats left")
)

// show is one event and its hall.
type show struct {
	ID, Title, Place, When, Blurb string
	Euros                         int // for a seat

	mu    sync.Mutex
	sold  map[string]bool
	watch map[chan change]struct{}
}

// change is a message to a live seat map.
type change struct {
	Sold []string `json:"sold"`
	Free int      `json:"free"`
}

// order is a completed purchase.
type order struct {
	ID    string    `json:"order_id"`
	Event string    `json:"event"`
	Title string    `json:"title"`
	Seats []string  `json:"seats"`
	Name  string    `json:"name"`
	Email string    `json:"email"`
	At    time.Time `json:"at"`
}

func newShows() []*show {
	all := []*show{
		{ID: "aurora", Title: "Aurora Orchestra: Night Music", Place: "Harbour Hall", When: "Fri 12 June, 20:00", Euros: 48,
			Blurb: "Strings under a ceiling of northern light. One night only."},
		{ID: "paper-boats", Title: "Paper Boats", Place: "The Old Dock", When: "Sat 13 June, 19:30", Euros: 32,
			Blurb: "Four voices, one piano and the record that everybody hums."},
		{ID: "second-half", Title: "The Second Half", Place: "Harbour Hall", When: "Sun 14 June, 17:00", Euros: 26,
			Blurb: "A comedy about eleven people and the goalkeeper who never came."},
		{ID: "deep-field", Title: "Deep Field: live film score", Place: "Planetarium", When: "Thu 18 June, 21:00", Euros: 39,
			Blurb: "A telescope's first light, played by a band of nine in the dark."},
	}
	for _, s := range all {
		s.sold, s.watch = map[string]bool{}, map[chan change]struct{}{}
	}
	return all
}

// Price returns the price of a seat as pages show it.
func (s *show) Price() string { return fmt.Sprintf("€%d", s.Euros) }

// seatNames are A1 … A24, B1 …, the best seats first.
var seatNames = func() (names []string) {
	for r := range rows {
		for n := range rowSeats {
			names = append(names, string(rune('A'+r))+strconv.Itoa(n+1))
		}
	}
	return names
}()

var seatExists = func() map[string]bool {
	m := make(map[string]bool, len(seatNames))
	for _, s := range seatNames {
		m[s] = true
	}
	return m
}()

// soldSeats returns a sorted copy of the sold seats.
func (s *show) soldSeats() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.soldLocked()
}

func (s *show) soldLocked() []string {
	return append([]string{}, slices.Sorted(maps.Keys(s.sold))...)
}

// Left returns the number of free seats.
func (s *show) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(seatNames) - len(s.sold)
}

// buy sells all of the seats or none. If none are named, it sells the best free ones.
func (s *show) buy(seats []string, quantity int) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(seats) == 0 {
		for _, n := range seatNames {
			if len(seats) < quantity && !s.sold[n] {
				seats = append(seats, n)
			}
		}
		if len(seats) < quantity {
			return nil, errSoldOut
		}
	}
	for _, n := range seats {
		if s.sold[n] {
			return nil, errTaken
		}
	}
	for _, n := range seats {
		s.sold[n] = true
	}
	c := change{Sold: seats, Free: len(seatNames) - len(s.sold)}
	for w := range s.watch {
		select {
		case w <- c:
		default: // a reader that falls behind has to subscribe again: its channel is closed
			delete(s.watch, w)
			close(w)
		}
	}
	return seats, nil
}

// subscribe returns the sold seats and a channel of all later changes. The channel is closed if its reader falls behind.
func (s *show) subscribe() (change, chan change) {
	w := make(chan change, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch[w] = struct{}{}
	return change{Sold: s.soldLocked(), Free: len(seatNames) - len(s.sold)}, w
}

func (s *show) unsubscribe(w chan change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watch, w)
}

// orders stores purchases by the key of their form, so that a form that is sent twice buys once.
type orders struct {
	mu    sync.Mutex
	byKey map[string]*order
	keys  []string // oldest first
}

const keptOrders = 10_000

// once returns the order of the key, or calls purchase. Orders without a key are not stored.
func (o *orders) once(key string, purchase func() (*order, error)) (*order, error) {
	if key == "" {
		return purchase()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if done, ok := o.byKey[key]; ok {
		return done, nil
	}
	done, err := purchase()
	if err != nil {
		return nil, err
	}
	if len(o.keys) == keptOrders {
		delete(o.byKey, o.keys[0])
		o.keys = o.keys[1:]
	}
	o.byKey[key], o.keys = done, append(o.keys, key)
	return done, nil
}

func newOrderID() string { return fmt.Sprintf("T-%s", rand.Text()[:10]) }
