package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync/atomic"
	"time"
)

// draws computes the lotteries of a room.
type draws struct {
	identity
	view         *view
	commitment   atomic.Pointer[drawCommitment]
	otherOpening int64 // an opening later than the configured one that was logged; guarded by ticker.ticking
}

// UnheardBefore is how many of the unheard are ahead of an order, by its share of the numbers drawn: those are uniform.
func (r *draws) UnheardBefore(order int64) int64 {
	s := r.view.Snapshot()
	n := s.Unheard()
	if n == 0 || order >= s.Drawn {
		return n
	}
	d := r.draw(s.Opens)
	if d == nil {
		return n
	}
	span := d.Span()
	return int64(float64(n) * float64(max(0, order-(s.Drawn-span))) / float64(span))
}

// draw gives the lottery of that opening; nil where the configuration has none, or another gateway has its seed.
func (r *draws) draw(opens int64) *Draw {
	d := r.view.schedule.Load().Policy.Plan.Draw(opens)
	if d == nil {
		return nil
	}
	switch _, seed, known := r.Lot(d); {
	case !known:
		return nil
	case seed != d.Seed:
		return &Draw{Opens: d.Opens, Gathers: d.Gathers, Seed: seed}
	}
	return d
}

// toOrder is the lot of a ticket without an order.
type toOrder uint8

const (
	hasOrder toOrder = iota
	gathers          // it has none yet, and is confirmed
	placed           // it has one now, and is enrolled
)

// order gives a ticket the order that it has come to have since it was signed without one: the drawn one, by opens and drawn
// of an opening; where the room takes people in the order in which they come, that of when it was signed; 0, that of its
// enrolment, to whom nobody confirmed in time.
func (r *draws) order(s *Snapshot, t Ticket, opens, drawn int64) (Ticket, toOrder) {
	if t.Order != 0 {
		return t, hasOrder
	}
	heard := t.Epoch != ""
	if t.Fence == 0 {
		t.Fence = s.Fence // it has no order of its gateway's clock
	}
	d := r.draw(opens)
	switch {
	case !s.Known:
		return t, gathers
	case d != nil && drawn > 0 && heard && t.Seen < drawn:
		t.Order = d.Order(t.ID, drawn)
	case d == nil && drawn > 0 && heard && t.Seen < drawn && s.Policy.Method == Lottery &&
		(opens > s.Policy.OpensAt && s.Policy.Plan.Lotteries() > 0 || s.Policy.Plan.Draw(opens) != nil):
		return t, gathers // the draw of another configuration, or by another's secret: a gateway that has it knows the place
	case s.Policy.Method == Reject, s.Policy.Method == Passthrough, s.Gathering() && (drawn == 0 || opens < s.Policy.OpensAt):
		return t, gathers
	case heard && s.Policy.Method != Lottery && t.Joined > 0:
		t.Order = max(1, t.Joined*1e6+r.view.orderLead())
	}
	return t, placed
}

// drawCommitment is by which commitment an opening is drawn, as the store says, and the seed once it has opened. Immutable.
type drawCommitment struct {
	opens      int64
	commitment [32]byte
	seed       [32]byte
	shown      bool  // the seed is known
	apart      int64 // mono since when the configuration's secret gives another; 0: it does not
	logged     bool
}

// apartFor is after how long it is another gateway that has the other secret, and no former configuration: STANDS of
// lua/lib/lottery.lua and a tick.
const apartFor = 12 * time.Second

// Lot is by what an opening of the configuration is drawn: the commitment that counts, and the seed where it is known here.
// While gateways have different secrets, both are of the one that came first, who gives the seed to the others once it has
// opened.
func (r *draws) Lot(d *Draw) (commitment, seed [32]byte, known bool) {
	own := d.Commitment()
	if l := r.commitment.Load(); l != nil && l.opens == d.Opens && l.commitment != own {
		return l.commitment, l.seed, l.shown
	}
	return own, d.Seed, true
}

// DrawsApart tells whether another gateway draws the room's lottery by another secret.
func (r *draws) DrawsApart() bool {
	l := r.commitment.Load()
	return l != nil && l.apart != 0 && r.c.mono()-l.apart >= int64(apartFor)
}

// ownLot is the draw that this gateway speaks of: the store's, or the next.
func (r *draws) ownLot(s *Snapshot) *Draw {
	c := r.view.schedule.Load()
	if d := c.Policy.Plan.Draw(s.Opens); d != nil {
		return d
	}
	return c.Policy.Plan.Draw(c.At(r.view.RedisNow()).Policy.OpensAt)
}

// sayLot is what room_advance is told of it: what was heard of it before goes along, for a store that has lost it.
func (r *draws) sayLot(s *Snapshot) string {
	d := r.ownLot(s)
	if d == nil {
		return ""
	}
	own := d.Commitment()
	known, seed := own, ""
	if l := r.commitment.Load(); l != nil && l.opens == d.Opens {
		known = l.commitment
		if l.shown {
			seed = string(l.seed[:])
		}
	}
	if known == own && s.Drawn > 0 && s.Opens == d.Opens {
		seed = string(d.Seed[:])
	}
	return itoa(d.Opens) + ":" + string(known[:]) + string(own[:]) + seed
}

// hearLot takes in what the store says. Called with ticking held.
func (r *draws) hearLot(text string) {
	opens, rest, _ := strings.Cut(text, ":")
	if len(rest) < 32 {
		return
	}
	next := &drawCommitment{opens: asInt(opens), commitment: [32]byte([]byte(rest[:32]))}
	if len(rest) == 64 {
		next.seed = [32]byte([]byte(rest[32:]))
		next.shown = sha256.Sum256(next.seed[:]) == next.commitment
	}
	now := max(1, r.c.mono())
	if d := r.view.schedule.Load().Policy.Plan.Draw(next.opens); d != nil && d.Commitment() != next.commitment {
		next.apart = now
		if old := r.commitment.Load(); old != nil && old.opens == next.opens && old.apart != 0 {
			next.apart, next.logged = old.apart, old.logged
		}
		if !next.logged && now-next.apart >= int64(apartFor) {
			next.logged = true
			own := d.Commitment()
			r.c.o.Log.Error("another gateway has another queue.draw_secret_file: the lottery is drawn by the commitment that was published first; give all gateways the same file, and send SIGHUP",
				"room", r.id, "opens_at", time.UnixMicro(next.opens).UTC(), "commitment", hex.EncodeToString(next.commitment[:]), "here", hex.EncodeToString(own[:]))
		}
	}
	r.commitment.Store(next)
}
