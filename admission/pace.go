package admission

import "math"

// Rates are how fast a room has moved lately, per second.
type Rates struct {
	Known                                bool
	Joins, Admissions, Claims, Abandoned float64 // over the last ten seconds
	Abandonment                          float64 // share of those who left of those who left or were admitted in the last ten minutes
	Left                                 int64   // that both are: 0: Abandonment is not known
	EmptyIn                              int64   // s until the queue is empty at the pace of the last minute, or of ten seconds if it grew in that minute; 0: never, or nobody waits
}

const (
	paceSeconds  = 10
	emptySeconds = 60
	paceKept     = 600 // seconds
)

// totals are the totals of a room at a second of Redis's clock.
type totals struct{ at, joins, admissions, claims, abandons int64 }

// pace keeps the totals of the last ten minutes. The zero value is empty.
type pace struct{ list []totals }

// add notes the totals of a snapshot.
func (p *pace) add(s *Snapshot) {
	next := totals{s.RedisTime / 1e6, s.Joins, s.Admissions, s.Claims, s.Abandons}
	if n := len(p.list); n > 0 {
		last := &p.list[n-1]
		switch {
		case next.at < last.at || next.joins < last.joins || next.admissions < last.admissions:
			p.list = p.list[:0] // another store
		case next.at == last.at:
			*last = next
			return
		}
	}
	if n := len(p.list); n > 0 && next.at-p.list[0].at > paceKept {
		p.list = append(p.list[:0], p.list[1:]...)
	}
	p.list = append(p.list, next)
}

// since returns the newest totals that are at least seconds old, or the oldest.
func (p *pace) since(seconds int64) totals {
	last := p.list[len(p.list)-1]
	for i := len(p.list) - 1; i > 0; i-- {
		if last.at-p.list[i].at >= seconds {
			return p.list[i]
		}
	}
	return p.list[0]
}

// rates returns the rates at a snapshot.
func (p *pace) rates(s *Snapshot) (r Rates) {
	if len(p.list) < 2 {
		return r
	}
	last, then := p.list[len(p.list)-1], p.since(paceSeconds)
	each := 1 / float64(max(1, last.at-then.at))
	r = Rates{
		Known: true, Joins: float64(last.joins-then.joins) * each, Admissions: float64(last.admissions-then.admissions) * each,
		Claims: float64(last.claims-then.claims) * each, Abandoned: float64(last.abandons-then.abandons) * each,
	}
	long := p.list[0]
	if left := last.abandons - long.abandons; left+last.admissions-long.admissions > 0 {
		r.Left = left + last.admissions - long.admissions
		r.Abandonment = float64(left) / float64(r.Left)
	}
	for _, seconds := range []int64{emptySeconds, paceSeconds} { // the minute after a burst of arrivals has more of them than admissions
		from := p.since(seconds)
		drained := (last.admissions - from.admissions) + (last.abandons - from.abandons) - (last.joins - from.joins)
		if drained > 0 && s.Waiting > 0 {
			r.EmptyIn = int64(math.Ceil(float64(s.Waiting) * float64(max(1, last.at-from.at)) / float64(drained)))
			break
		}
	}
	return r
}
