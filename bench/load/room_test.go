package load

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// fasthttp's cleaner of idle connections ends after its interval.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"))
}

// room is a waiting room in memory that breaks one promise, which a real gateway cannot do. It admits with each poll, from the
// front, at most roomBurst at once and one more every `every`.
type room struct {
	mu     sync.Mutex
	fault  string
	every  time.Duration
	pause  float64          // s between polls
	full   time.Time        // when the token bucket is full again
	orders map[string]int64 // jti → order
	in     map[string]time.Time
	left   map[string]bool
	next   int64
	polls  int
	gave   int
	opened bool
}

const (
	roomBurst = 3
	roomEvery = 5 * time.Millisecond // 200/s
)

func newRoom(t *testing.T, fault string) (*room, string) {
	r := &room{fault: fault, every: roomEvery, pause: 0.01, orders: map[string]int64{}, in: map[string]time.Time{}, left: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /.waiting-room/default/tickets", r.join)
	mux.HandleFunc("GET /.waiting-room/default/status", r.status)
	mux.HandleFunc("GET /", r.page)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return r, s.URL
}

func token(jti string, order int64) string {
	payload, _ := json.Marshal(map[string]any{"jti": jti, "aud": "default", "ord": order, "ep": "e1"})
	return "e30." + base64.RawURLEncoding.EncodeToString(payload) + ".c2ln"
}

// unconfirmed returns the token of a place that the store does not hold yet.
func unconfirmed(jti string, order int64) string {
	payload, _ := json.Marshal(map[string]any{"jti": jti, "aud": "default", "ord": order})
	return "e30." + base64.RawURLEncoding.EncodeToString(payload) + ".c2ln"
}

func (r *room) place() (jti string) {
	r.next++
	jti = fmt.Sprintf("v%d", r.next)
	r.orders[jti] = r.next * 10
	return jti
}

func (r *room) join(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == "closed at first" && r.next == 0 && r.gave < 20 {
		r.gave++
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprint(w, `{"code":"room_closed","status":503}`)
		return
	}
	jti := r.place()
	body := map[string]any{"state": "waiting", "refresh_after": r.pause, "token": token(jti, r.orders[jti])}
	if r.fault == "the store is slow" && r.next%10 == 0 {
		body["token"] = unconfirmed(jti, r.orders[jti])
	}
	if r.fault == "a position grows in the rush" {
		body["position"], body["waiting"] = 1, 1
	}
	answer(w, http.StatusCreated, body)
}

func (r *room) page(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Header.Get("X-Waiting-Room-Pass") == "pass" && r.fault != "passes do not work" {
		_, _ = fmt.Fprint(w, "the shop")
		return
	}
	jti := r.place()
	http.SetCookie(w, &http.Cookie{Name: "wr_default_ticket", Value: token(jti, r.orders[jti]), Path: "/"})
	w.Header().Set("X-Waiting-Room", "waiting")
	w.Header().Set("Content-Type", "text/html")
	_, _ = fmt.Fprint(w, "please wait")
}

func (r *room) who(q *http.Request) (jti string) {
	t := q.Header.Get("X-Waiting-Room-Token")
	if ck, err := q.Cookie("wr_default_ticket"); err == nil {
		t = ck.Value
	}
	raw, _ := base64.RawURLEncoding.DecodeString(strings.Split(t+"..", ".")[1])
	var c struct{ JTI string }
	_ = json.Unmarshal(raw, &c)
	return c.JTI
}

func (r *room) status(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polls++
	jti := r.who(q)
	if r.polls%4 == 0 && r.fault == "connections break" {
		panic(http.ErrAbortHandler)
	}
	if r.polls == 10 {
		switch r.fault {
		case "a token is refused":
			w.WriteHeader(http.StatusUnauthorized)
			return
		case "a place expires":
			fresh := r.place()
			r.left[jti] = true
			answer(w, 200, map[string]any{"state": "expired", "reason": "late", "refresh_after": r.pause, "token": token(fresh, r.orders[fresh])})
			return
		case "a place moves back":
			r.next++
			r.orders[jti] = r.next * 10
			answer(w, 200, map[string]any{"state": "waiting", "refresh_after": r.pause, "token": token(jti, r.orders[jti])})
			return
		}
	}
	if at, ok := r.admit(jti); ok {
		http.SetCookie(w, &http.Cookie{Name: "wr_default_pass", Value: "pass", Path: "/"})
		answer(w, 200, map[string]any{"state": "admitted", "pass": "pass", "admitted_at": at.UTC().Format("2006-01-02T15:04:05.000000Z07:00")})
		return
	}
	position, waiting := r.rank(jti)
	switch {
	case r.fault == "a position grows" && r.polls%50 == 49:
		position += 7
	case r.fault == "positions are reversed":
		position = waiting + 1 - position
	case r.fault == "positions are off by a tenth":
		position = position*9/10 + 1
	case r.fault == "tokens are renewed" || r.fault == "the store is slow" && r.polls > 100:
		answer(w, 200, map[string]any{"state": "waiting", "position": position, "waiting": waiting, "refresh_after": r.pause, "token": token(jti, r.orders[jti])})
		return
	}
	answer(w, 200, map[string]any{"state": "waiting", "position": position, "waiting": waiting, "refresh_after": r.pause})
}

// rank returns the position of jti and how many wait.
func (r *room) rank(jti string) (position, waiting int) {
	position = 1
	for id, o := range r.orders {
		if _, in := r.in[id]; in || r.left[id] {
			continue
		}
		waiting++
		if o < r.orders[jti] {
			position++
		}
	}
	return position, waiting
}

// admit admits from the front as a GCRA allows, and returns when jti was admitted.
func (r *room) admit(jti string) (time.Time, bool) {
	now := time.Now().Truncate(time.Microsecond)
	// These two faults need a queue, which does not form if arriving takes longer than being admitted.
	if r.opened = r.opened || len(r.orders) >= 20 || r.fault != "too fast" && r.fault != "last come first served"; !r.opened {
		return time.Time{}, false
	}
	// This one needs a visitor who still waits.
	if r.fault == "a place moves back" && r.polls < 10 {
		return time.Time{}, false
	}
	for r.fault == "too fast" || !r.full.After(now.Add((roomBurst-1)*r.every)) {
		head := ""
		for id, o := range r.orders {
			if _, in := r.in[id]; in || r.left[id] {
				continue
			}
			if head == "" || o < r.orders[head] != (r.fault == "last come first served") {
				head = id
			}
		}
		if head == "" {
			break
		}
		r.in[head] = now
		if r.full.Before(now) {
			r.full = now
		}
		r.full = r.full.Add(r.every)
	}
	at, ok := r.in[jti]
	return at, ok
}

func answer(w http.ResponseWriter, code int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
