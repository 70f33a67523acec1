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
	otherOpening int64 // the last opening, later than the configured one, that was logged; guarded by ticker.ticking
}

// UnheardBefore returns how many of the unheard tickets of a pre-queue are before an order. Drawn orders are uniform, so it is
// their share of the span.
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

// draw returns the lottery of an opening; nil where the configuration has none, or another gateway has its seed.
func (r *draws) draw(opens int64) *Draw {
	d := r.view.schedule.Load().Policy.Plan.Draw(opens)
	if d == nil {
		return nil
	}
	switch _, seed, known := r.Commitment(d); {
	case !known:
		return nil
	case seed != d.Seed:
		return &Draw{Opens: d.Opens, Gathers: d.Gathers, Seed: seed}
	}
	return d
}

// orderState is the result of draws.order.
type orderState uint8

const (
	hasOrder orderState = iota
	noOrder             // the ticket has no order yet: the pre-queue confirms it
	newOrder            // the ticket has a new order and must be enrolled
)

// order returns t with its order. A ticket that was signed without one has, after the opening opens at order time drawn, the drawn
// order; in a room that is no longer a lottery, the time of its signing; and if the store did not confirm the ticket in time, 0,
// which stands for the time of its enrolment.
func (r *draws) order(s *Snapshot, t Ticket, opens, drawn int64) (Ticket, orderState) {
	if t.Order != 0 {
		return t, hasOrder
	}
	heard := t.Epoch != ""
	if t.Fence == 0 {
		t.Fence = s.Fence // without an order, it depends on no gateway's clock
	}
	d := r.draw(opens)
	switch {
	case !s.Known:
		return t, noOrder
	case d != nil && drawn > 0 && heard && t.Seen < drawn:
		t.Order = d.Order(t.ID, drawn)
	case d == nil && drawn > 0 && heard && t.Seen < drawn && s.Policy.Method == Lottery &&
		(opens > s.Policy.OpensAt && s.Policy.Plan.Lotteries() > 0 || s.Policy.Plan.Draw(opens) != nil):
		return t, noOrder // drawn by another configuration or secret: only a gateway that has it can compute the order
	case s.Policy.Method == Reject, s.Policy.Method == Passthrough, s.Gathering() && (drawn == 0 || opens < s.Policy.OpensAt):
		return t, noOrder
	case heard && s.Policy.Method != Lottery && t.Joined > 0:
		t.Order = max(1, t.Joined*1e6+r.view.orderLead())
	}
	return t, newOrder
}

// drawCommitment is the commitment of an opening as the store keeps it, and the seed once the lottery has opened. It is
// immutable.
type drawCommitment struct {
	opens      int64
	commitment [32]byte
	seed       [32]byte
	shown      bool  // seed is known
	apart      int64 // mono since when the configured secret leads to another commitment; 0: it does not
	logged     bool
}

// apartFor is after how long a different commitment is due to another secret and not to a former configuration: STANDS of
// lua/lib/lottery.lua and a tick.
const apartFor = 12 * time.Second

// Commitment returns the commitment by which an opening of the configuration is drawn, and the seed if this gateway knows it. While
// gateways have different secrets, the commitment that was published first counts; its gateway publishes the seed after the
// opening.
func (r *draws) Commitment(d *Draw) (commitment, seed [32]byte, known bool) {
	own := d.Commitment()
	if l := r.commitment.Load(); l != nil && l.opens == d.Opens && l.commitment != own {
		return l.commitment, l.seed, l.shown
	}
	return own, d.Seed, true
}

// DrawsApart reports whether another gateway draws the room's lottery by another secret.
func (r *draws) DrawsApart() bool {
	l := r.commitment.Load()
	return l != nil && l.apart != 0 && r.c.mono()-l.apart >= int64(apartFor)
}

// ownDraw returns the lottery that this gateway reports to the store: the one that the store has opened, or the next.
func (r *draws) ownDraw(s *Snapshot) *Draw {
	c := r.view.schedule.Load()
	if d := c.Policy.Plan.Draw(s.Opens); d != nil {
		return d
	}
	return c.Policy.Plan.Draw(c.At(r.view.RedisNow()).Policy.OpensAt)
}

// reportDraw returns the commitment and seed of ownDraw in the form of room_advance, with those that the store reported before, in
// case it has lost them.
func (r *draws) reportDraw(s *Snapshot) string {
	d := r.ownDraw(s)
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

// adoptDraw stores the commitment that the store reports. The caller holds ticking.
func (r *draws) adoptDraw(text string) {
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
			r.c.o.Log.Error("another gateway has another queue.draw_secret_file; the lottery is drawn by the commitment that was published first. Give all gateways the same file and send SIGHUP",
				"room", r.id, "opens_at", time.UnixMicro(next.opens).UTC(), "commitment", hex.EncodeToString(next.commitment[:]), "here", hex.EncodeToString(own[:]))
		}
	}
	r.commitment.Store(next)
}
