package admission

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/internal/redistest"
)

// sessionModel is a model of sessions that gateways keep alive. For each it knows the latest time at which it was certainly alive, and at
// which it was possibly alive. Between ttl and 1.5 ttl after the last request either reply is right.
type sessionModel struct {
	t        *rapid.T
	client   redis.UniversalClient
	keys     []string
	c        *testClock
	p        Policy
	rooms    []*Room // gateways
	reports  []map[ID]int64
	cut      []bool // from the store
	visitors []*modelVisitor
	room     time.Duration // room time: stands still while no gateway reaches the store
	ticked   int64         // the last tick of any gateway, µs
	lostAt   time.Duration // room time of the last loss; negative: none
	torn     bool          // after a loss some gateway has not restored what it knows yet
	limited  bool          // nothing happens that may exceed max_active
}

type modelVisitor struct {
	id       ID
	at       int64         // of the last request that the store has recorded or a reachable gateway has served, µs
	pending  map[int]int64 // likewise, of gateways that are cut off
	possible time.Duration // room time of the last accepted request, or of the return of the gateway that accepted it
	unheard  map[int]bool  // gateways that have accepted requests while they were cut off
	revoked  bool
}

const modelTTL = 20 * time.Second

func (m *sessionModel) ctx() context.Context { return context.Background() }

func (m *sessionModel) tick(g int) {
	if err := m.rooms[g].Tick(m.ctx()); err != nil {
		m.t.Fatal(err)
	}
	gap := time.Duration(m.c.us-m.ticked) * time.Microsecond
	if gap > 5*time.Second {
		gap = time.Second // a silence of the store
	}
	m.room, m.ticked = m.room+gap, m.c.us
	for _, v := range m.visitors {
		if at, ok := v.pending[g]; ok {
			v.at = max(v.at, at)
			delete(v.pending, g)
		}
		if v.unheard[g] {
			v.possible = m.room
			delete(v.unheard, g)
		}
	}
}

func (m *sessionModel) pass(d, step time.Duration) {
	rounds := 0
	for ; d > 0; d -= step {
		rounds++
		m.c.pass(min(d, step))
		for g := range m.rooms {
			if !m.cut[g] {
				m.tick(g)
			}
		}
	}
	m.torn = m.torn && (m.cut[0] || m.cut[1] || rounds < 2) // the second tick shows what the other gateway has restored
	if n := m.rooms[0].Snapshot(); m.limited && n.Known && n.Active+n.Admitted > m.p.MaxActive {
		m.t.Fatalf("%d active and %d admitted, of at most %d", n.Active, n.Admitted, m.p.MaxActive)
	}
}

// arrive starts a session at a gateway that reaches the store, if there is capacity.
func (m *sessionModel) arrive(g int) {
	s, refusal, err := m.rooms[g].Join(m.ctx(), Arrival{ID: testID(), Client: testClient(1)})
	switch {
	case err != nil || refusal != Granted:
		m.t.Fatalf("join: %v %q", err, refusal)
	case s.State == Active:
		m.rooms[g].Touch(s.Ticket.ID, false)
		m.visitors = append(m.visitors, &modelVisitor{id: s.Ticket.ID, at: m.c.us, possible: m.room, pending: map[int]int64{}, unheard: map[int]bool{}})
	default:
		if err := m.rooms[g].Leave(m.ctx(), s.Ticket); err != nil {
			m.t.Fatal(err)
		}
	}
}

// request makes a request with a pass, as package gateway does.
func (m *sessionModel) request(g int, v *modelVisitor) {
	r := m.rooms[g]
	if r.Revoked(v.id) {
		if !v.revoked {
			m.t.Fatal("revoked by nobody")
		}
		return
	}
	if v.revoked && !m.cut[g] && !m.torn {
		m.t.Fatal("a revoked session goes on")
	}
	next, reported := m.reports[g][v.id]
	now, sure := m.c.us/1e6, true
	if !reported || next <= now {
		var goesOn bool
		goesOn, sure = r.Alive(m.ctx(), v.id)
		if !sure && !m.cut[g] {
			m.t.Fatal("a gateway that reaches the store does not know whether a session goes on")
		}
		silent := time.Duration(m.c.us-max(v.at, v.pending[g])) * time.Microsecond
		if !goesOn {
			if silent < modelTTL && !v.revoked {
				m.t.Fatalf("refused at gateway %d (cut off %t) after %s of silence", g, m.cut[g], silent)
			}
			return
		}
		if over := m.room - v.possible; !m.cut[g] && over > modelTTL*3/2+8*time.Second && (m.lostAt < 0 || m.room-m.lostAt > modelTTL+2*time.Second) {
			m.t.Fatalf("accepted at gateway %d after %s of silence", g, over)
		}
	}
	silent := time.Duration(m.c.us-max(v.at, v.pending[g])) * time.Microsecond
	v.possible = m.room
	if m.cut[g] {
		v.unheard[g] = true
	}
	switch {
	case !m.cut[g]:
		v.at = m.c.us
	case silent < modelTTL: // else the store may find that it had ended
		v.pending[g] = m.c.us
	}
	if sure && (!reported || next <= now) {
		m.reports[g][v.id] = now + int64(modelTTL/time.Second)/4
	}
	if !sure || !reported || next <= now {
		r.Touch(v.id, false)
	}
}

// Two gateways over one store: nobody who was silent for less than ttl is refused, nobody passes after 1.5 ttl while the store is
// reachable, and max_active holds.
func TestAlive_Model(t *testing.T) {
	t.Parallel()
	client := redistest.Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		c, prefix, p := newTestClock(), redistest.Prefix(t), lasting(modelTTL)
		p.MaxActive = 3
		m := &sessionModel{
			t: rt, client: client, keys: roomKeys(prefix, "sale"), c: c, p: p, cut: make([]bool, 2), lostAt: -1, ticked: c.us,
			limited: rapid.Bool().Draw(rt, "limited"),
		}
		fresh := func() *Room { return testCore(t, client, prefix, c, p) }
		for range 2 {
			m.rooms, m.reports = append(m.rooms, fresh()), append(m.reports, map[ID]int64{})
		}
		m.pass(30*time.Second, 4*time.Second) // sessions of a store that has just begun count
		m.lostAt = -1
		gateway := rapid.IntRange(0, 1)
		reachable := func(t *rapid.T) int {
			g := gateway.Draw(t, "gateway")
			if m.cut[g] {
				g = 1 - g
			}
			if m.cut[g] {
				t.Skip("both are cut off")
			}
			return g
		}
		visitor := func(t *rapid.T) *modelVisitor {
			if len(m.visitors) == 0 {
				t.Skip("nobody is in")
			}
			return rapid.SampledFrom(m.visitors).Draw(t, "visitor")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"arrive":  func(t *rapid.T) { m.t = t; m.arrive(reachable(t)) },
			"request": func(t *rapid.T) { m.t = t; m.request(gateway.Draw(t, "gateway"), visitor(t)) },
			"more":    func(t *rapid.T) { m.t = t; m.request(gateway.Draw(t, "gateway"), visitor(t)) },
			"moments": func(t *rapid.T) {
				m.t = t
				m.pass(time.Duration(rapid.IntRange(1, 8000).Draw(t, "ms"))*time.Millisecond, time.Second)
			},
			"silence": func(t *rapid.T) {
				m.t = t
				m.pass(time.Duration(rapid.IntRange(10, 50).Draw(t, "s"))*time.Second, 4*time.Second)
			},
			"cut off": func(t *rapid.T) {
				g := gateway.Draw(t, "gateway")
				for i := range m.rooms {
					if i == g || m.limited { // a gateway that alone is cut off keeps sessions whose places others may have taken
						m.cut[i] = true
						m.rooms[i].store.markAway(errAway)
					}
				}
			},
			"back": func(t *rapid.T) {
				m.t = t
				for g := range m.rooms {
					if m.cut[g] {
						m.cut[g] = false
						m.tick(g)
					}
				}
				m.pass(2*time.Second, time.Second)
			},
			"revoke": func(t *rapid.T) {
				m.t = t
				g, v := reachable(t), visitor(t)
				if err := m.rooms[g].RevokeSession(m.ctx(), "ann", v.id); err != nil {
					t.Fatal(err)
				}
				v.revoked = true
				m.pass(2*time.Second, time.Second)
			},
			"loss": func(t *rapid.T) {
				m.t = t
				if m.limited {
					t.Skip("sessions without a record count for a ttl")
				}
				if err := client.Del(m.ctx(), m.keys...).Err(); err != nil {
					t.Fatal(err)
				}
				m.lostAt, m.torn = m.room, true
			},
			"restart": func(t *rapid.T) {
				m.t = t
				g := reachable(t)
				if m.torn {
					t.Skip("it may be the only one with the record of a revocation")
				}
				m.tick(g) // as a gateway that ends
				m.rooms[g], m.reports[g] = fresh(), map[ID]int64{}
				m.tick(g)
			},
		})
	})
}
