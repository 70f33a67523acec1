package admission_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// What is done to a ticket, and by which client.
type asked struct {
	what   string // enter check claim lookup leave revoke
	ticket int
	client byte
}

// What came back: W waiting, A admitted, C active, E over, - not in the store,
// + done, ? not known, because the store did not answer.
type told byte

const (
	nowhere, waits, admitted, active, over, done, unknown = '-', 'W', 'A', 'C', 'E', '+', '?'
)

// sequential is the room as it would be without concurrency: per ticket one of - W A C E, with the client of a session.
// Nobody sees an admission itself, so it happens when the first answer shows it, and then for all who are ahead of that
// ticket too: what the model admits, the room must have admitted.
//
//   - → W   enter, check, claim            W → A   in order, while A + C ≤ most
//     A  → C   a claim; the same client may repeat it, others get E
//     -, W, A → E   leave                     any → E   revoke
type sequential struct {
	most   int     // max_active
	orders []int64 // of the tickets; 0 where it is not known
}

// places is two bytes a ticket: where it stands, and the client of its session.
type places string

func (s places) at(t int) byte     { return s[2*t] }
func (s places) client(t int) byte { return s[2*t+1] }

func (s places) set(t int, where, client byte) places {
	b := []byte(s)
	b[2*t], b[2*t+1] = where, client
	return places(b)
}

// admit admits ticket t and all waiting tickets before it.
func (m sequential) admit(s places, t int) (places, bool) {
	for u := range m.orders {
		if s.at(u) == waits && (u == t || m.orders[u] > 0 && m.orders[t] > 0 && m.orders[u] < m.orders[t]) {
			s = s.set(u, admitted, 0)
		}
	}
	if s.at(t) != admitted {
		s = s.set(t, admitted, 0)
	}
	return s, m.within(s)
}

func (m sequential) within(s places) bool {
	n := 0
	for u := range m.orders {
		if s.at(u) == admitted || s.at(u) == active {
			n++
		}
	}
	return n <= m.most
}

// step reports whether the reply is possible in state s, and the state after it. An unknown reply is possible.
func (m sequential) step(s places, q asked, a told) (bool, places) {
	t := q.ticket
	where := s.at(t)
	switch q.what {
	case "leave":
		if where == active || where == over {
			return a == done || a == unknown, s
		}
		return a == done || a == unknown, s.set(t, over, 0)
	case "revoke":
		return a == done || a == unknown, s.set(t, over, 0)
	case "lookup":
		switch {
		case where == byte(a):
			return true, s
		case where == waits && a == admitted:
			s, ok := m.admit(s, t)
			return ok, s
		}
		return false, s
	}
	if where == nowhere {
		where = waits
		s = s.set(t, waits, 0)
		if q.what == "enter" && a == active { // at once: nobody waits
			for u := range m.orders {
				if s.at(u) == waits {
					s = s.set(u, admitted, 0)
				}
			}
			s = s.set(t, active, q.client)
			return m.within(s), s
		}
	}
	switch where {
	case waits, admitted:
		switch {
		case a == unknown && (q.what != "claim" || where == waits):
			return true, s
		case a == unknown:
			return true, s.set(t, active, q.client)
		case a == waits:
			return where == waits, s
		case a == admitted:
			s, ok := m.admit(s, t)
			return ok, s
		case a == active && q.what == "claim":
			s, ok := m.admit(s, t)
			return ok, s.set(t, active, q.client)
		}
		return false, s
	case active:
		mine := s.client(t) == q.client
		return a == unknown || mine && a == active || !mine && a == over, s
	}
	return a == unknown || a == over, s
}

// model is m for the checker.
func (m sequential) model() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{places(strings.Repeat("-\x00", len(m.orders)))} },
		Step: func(from, input, output any) []any {
			s, q, a := from.(places), input.(asked), output.(told)
			ok, next := m.step(s, q, a)
			if !ok {
				return nil
			}
			all := []any{next}
			if a == unknown && (q.what == "claim" || q.what == "enter") && next.at(q.ticket) == waits {
				// It may have been admitted.
				if ok, next := m.step(s, q, active); ok {
					all = append(all, next)
				}
			}
			return all
		},
		DescribeOperation: func(input, output any) string {
			q, a := input.(asked), output.(told)
			return fmt.Sprintf("%s %d by %c: %c", q.what, q.ticket, q.client, a)
		},
	}
	return model.ToModel()
}

// never is the return of an operation whose outcome is not known: it may take effect at any later time.
const never = math.MaxInt64

func TestSequentialRoom_Steps(t *testing.T) {
	op := func(what string, ticket int, client byte, answer told, call, ret int64) porcupine.Operation {
		return porcupine.Operation{Input: asked{what, ticket, client}, Output: answer, Call: call, Return: ret}
	}
	m := sequential{most: 2, orders: []int64{10, 20, 30}}
	for _, row := range []struct {
		name string
		ops  []porcupine.Operation
		ok   bool
	}{
		{"enter, claim, claim again", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("claim", 0, 'a', active, 3, 4), op("claim", 0, 'a', active, 5, 6)}, true},
		{"a second client", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("claim", 0, 'a', active, 3, 4), op("claim", 0, 'b', active, 5, 6)}, false},
		{"a second client is refused", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("claim", 0, 'a', active, 3, 4), op("claim", 0, 'b', over, 5, 6)}, true},
		{"two clients at once", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("claim", 0, 'a', active, 3, 9), op("claim", 0, 'b', active, 3, 9)}, false},
		{"refused though nobody claimed", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("claim", 0, 'b', over, 5, 6)}, false},
		{"refused after a claim that was not answered", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("claim", 0, 'a', unknown, 3, never), op("claim", 0, 'b', over, 5, 6)}, true},
		{"a claim that was not answered had no effect", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("claim", 0, 'a', unknown, 3, never), op("claim", 0, 'b', active, 5, 6), op("claim", 0, 'a', over, 7, 8)}, true},
		{"it takes effect once", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("claim", 0, 'a', unknown, 3, never), op("claim", 0, 'b', active, 5, 6), op("claim", 0, 'a', active, 7, 8)}, false},
		{"admitted immediately without an answer", []porcupine.Operation{op("enter", 0, 'a', unknown, 1, never), op("claim", 0, 'b', over, 5, 6), op("claim", 0, 'a', active, 7, 8)}, true},
		{"left", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("leave", 0, 'a', done, 3, 4), op("claim", 0, 'a', active, 5, 6)}, false},
		{"left, waits again", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("leave", 0, 'a', done, 3, 4), op("enter", 0, 'a', waits, 5, 6)}, false},
		{"left while it claimed", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("leave", 0, 'a', done, 3, 6), op("claim", 0, 'a', active, 4, 5)}, true},
		{"a session is not left", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("claim", 0, 'a', active, 3, 4), op("leave", 0, 'a', done, 5, 6), op("lookup", 0, 'a', active, 7, 8)}, true},
		{"revoked", []porcupine.Operation{op("enter", 0, 'a', active, 1, 2), op("revoke", 0, 'o', done, 3, 4), op("claim", 0, 'a', active, 5, 6)}, false},
		{"admitted, waits again", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("check", 0, 'a', admitted, 3, 4), op("claim", 0, 'a', waits, 5, 6)}, false},
		{"out of order", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("enter", 1, 'b', waits, 3, 4), op("claim", 1, 'b', active, 5, 6), op("claim", 0, 'a', waits, 7, 8)}, false},
		{"in order", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("enter", 1, 'b', waits, 3, 4), op("claim", 1, 'b', active, 5, 6), op("claim", 0, 'a', active, 7, 8)}, true},
		{"at once past one who waits", []porcupine.Operation{op("enter", 0, 'a', waits, 1, 2), op("enter", 1, 'b', active, 3, 4), op("claim", 0, 'a', waits, 5, 6)}, false},
		{"three at once where two may be", []porcupine.Operation{op("enter", 0, 'a', active, 1, 2), op("enter", 1, 'b', active, 3, 4), op("enter", 2, 'c', active, 5, 6)}, false},
		{"the third when one has gone", []porcupine.Operation{op("enter", 0, 'a', active, 1, 2), op("enter", 1, 'b', active, 3, 4), op("revoke", 0, 'o', done, 5, 6), op("enter", 2, 'c', active, 7, 8)}, true},
		{"the third after a revocation that was not answered", []porcupine.Operation{op("enter", 0, 'a', active, 1, 2), op("enter", 1, 'b', active, 3, 4), op("revoke", 0, 'o', unknown, 5, never), op("enter", 2, 'c', active, 7, 8)}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := porcupine.Illegal
			if row.ok {
				want = porcupine.Ok
			}
			if got := porcupine.CheckOperationsTimeout(m.model(), row.ops, time.Minute); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
