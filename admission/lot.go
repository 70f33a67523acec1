package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// lot is by which commitment an opening is drawn, as the store says, and the seed once it has opened. Immutable.
type lot struct {
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
func (r *Room) Lot(d *Draw) (commitment, seed [32]byte, known bool) {
	own := d.Commitment()
	if l := r.lot.Load(); l != nil && l.opens == d.Opens && l.commitment != own {
		return l.commitment, l.seed, l.shown
	}
	return own, d.Seed, true
}

// DrawsApart tells whether another gateway draws the room's lottery by another secret.
func (r *Room) DrawsApart() bool {
	l := r.lot.Load()
	return l != nil && l.apart != 0 && r.c.mono()-l.apart >= int64(apartFor)
}

// ownLot is the draw that this gateway speaks of: the store's, or the next.
func (r *Room) ownLot(s *Snapshot) *Draw {
	c := r.config.Load()
	if d := c.Policy.Plan.Draw(s.Opens); d != nil {
		return d
	}
	return c.Policy.Plan.Draw(c.At(r.RedisNow()).Policy.OpensAt)
}

// sayLot is what room_advance is told of it: what was heard of it before goes along, for a store that has lost it.
func (r *Room) sayLot(s *Snapshot) string {
	d := r.ownLot(s)
	if d == nil {
		return ""
	}
	own := d.Commitment()
	known, seed := own, ""
	if l := r.lot.Load(); l != nil && l.opens == d.Opens {
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
func (r *Room) hearLot(text string) {
	opens, rest, _ := strings.Cut(text, ":")
	if len(rest) < 32 {
		return
	}
	next := &lot{opens: asInt(opens), commitment: [32]byte([]byte(rest[:32]))}
	if len(rest) == 64 {
		next.seed = [32]byte([]byte(rest[32:]))
		next.shown = sha256.Sum256(next.seed[:]) == next.commitment
	}
	now := max(1, r.c.mono())
	if d := r.config.Load().Policy.Plan.Draw(next.opens); d != nil && d.Commitment() != next.commitment {
		next.apart = now
		if old := r.lot.Load(); old != nil && old.opens == next.opens && old.apart != 0 {
			next.apart, next.logged = old.apart, old.logged
		}
		if !next.logged && now-next.apart >= int64(apartFor) {
			next.logged = true
			own := d.Commitment()
			r.c.o.Log.Error("another gateway has another queue.draw_secret_file: the lottery is drawn by the commitment that was published first; give all gateways the same file, and send SIGHUP",
				"room", r.id, "opens_at", time.UnixMicro(next.opens).UTC(), "commitment", hex.EncodeToString(next.commitment[:]), "here", hex.EncodeToString(own[:]))
		}
	}
	r.lot.Store(next)
}
