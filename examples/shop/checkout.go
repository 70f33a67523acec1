package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// purchase is the body of a checkout, a form or JSON.
type purchase struct {
	Event    string   `json:"event"`
	Seats    []string `json:"seats"`    // by name
	Quantity int      `json:"quantity"` // or so many of the best free seats
	Name     string   `json:"name"`
	Email    string   `json:"email"`
	Key      string   `json:"key"` // of the form; a key buys once
}

func (p *purchase) problems() (all []string) {
	if n := utf8.RuneCountInString(strings.TrimSpace(p.Name)); n == 0 || n > 100 {
		all = append(all, "name: 1 to 100 characters")
	}
	if a, err := mail.ParseAddress(p.Email); err != nil || a.Address != p.Email || len(p.Email) > 254 {
		all = append(all, "email: an address such as ana@example.com")
	}
	switch {
	case len(p.Seats) == 0 && (p.Quantity < 1 || p.Quantity > maxPerSale):
		all = append(all, fmt.Sprintf("seats: choose 1 to %d", maxPerSale))
	case len(p.Seats) > maxPerSale:
		all = append(all, fmt.Sprintf("seats: at most %d in one order", maxPerSale))
	case len(p.Seats) > 0 && p.Quantity != 0 && p.Quantity != len(p.Seats):
		all = append(all, "quantity: leave it out when you name seats")
	}
	for _, s := range p.Seats {
		if !seatExists[s] {
			all = append(all, "seats: this hall has no such seat")
			break
		}
	}
	if s := slices.Sorted(slices.Values(p.Seats)); len(slices.Compact(s)) != len(p.Seats) {
		all = append(all, "seats: the same seat twice")
	}
	if len(p.Key) > 64 {
		all = append(all, "key: at most 64 characters")
	}
	return all
}

// errBody is returned for a body that is not a purchase.
var errBody = errors.New("cannot read the order")

func readPurchase(r *http.Request) (p purchase, isJSON bool, err error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "application/json":
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			return p, true, fmt.Errorf("%w: %w", errBody, err)
		}
		return p, true, nil
	case err == nil && kind == "application/x-www-form-urlencoded":
		if err := r.ParseForm(); err != nil {
			return p, false, fmt.Errorf("%w: %w", errBody, err)
		}
		f := r.PostForm
		p = purchase{Event: f.Get("event"), Seats: f["seats"], Name: f.Get("name"), Email: f.Get("email"), Key: f.Get("key")}
		if q := f.Get("quantity"); q != "" {
			if p.Quantity, err = strconv.Atoi(q); err != nil {
				return p, false, fmt.Errorf("%w: quantity is not a number", errBody)
			}
		}
		return p, false, nil
	default:
		return p, false, fmt.Errorf("%w: send a form or application/json", errBody)
	}
}

// checkout sells seats. Its confirmation ends the visitor's session in a waiting room in front of the shop.
func (s *shop) checkout(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	p, isJSON, err := readPurchase(r)
	if err != nil {
		code := http.StatusBadRequest
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			code = http.StatusRequestEntityTooLarge
		}
		s.refuse(w, r, isJSON, code, nil, p, []string{errBody.Error()})
		return
	}
	e, ok := s.byID[p.Event]
	if !ok {
		s.refuse(w, r, isJSON, http.StatusUnprocessableEntity, nil, p, []string{"event: there is no such event"})
		return
	}
	if bad := p.problems(); len(bad) > 0 {
		s.refuse(w, r, isJSON, http.StatusUnprocessableEntity, e, p, bad)
		return
	}
	done, err := s.orders.once(p.Key, func() (*order, error) {
		seats, err := e.buy(p.Seats, p.Quantity)
		if err != nil {
			return nil, err
		}
		return &order{ID: newOrderID(), Event: e.ID, Title: e.Title, Seats: seats, Name: strings.TrimSpace(p.Name), Email: p.Email, At: time.Now().UTC()}, nil
	})
	if err != nil {
		s.refuse(w, r, isJSON, http.StatusConflict, e, p, []string{err.Error()})
		return
	}
	w.Header().Set("X-Waiting-Room-Command", "revoke")
	w.Header().Set("Cache-Control", "no-store")
	if isJSON {
		writeJSON(w, http.StatusCreated, done)
		return
	}
	s.render(w, r, http.StatusOK, "confirmation", page{Title: "Thank you", Show: e, Order: done, Inline: true})
}

func (s *shop) refuse(w http.ResponseWriter, r *http.Request, isJSON bool, code int, e *show, p purchase, problems []string) {
	w.Header().Set("Cache-Control", "no-store")
	if isJSON || e == nil && !strings.Contains(r.Header.Get("Accept"), "text/html") {
		writeJSON(w, code, map[string]any{"problems": problems})
		return
	}
	if e == nil {
		s.render(w, r, code, "home", page{Title: "Tickets", Shows: s.shows, Problems: problems})
		return
	}
	s.renderShow(w, r, code, e, p, problems)
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}
