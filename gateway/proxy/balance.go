package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"github.com/anteroom/anteroom/gateway/rawsocket"
	"math"
	"syscall"
	"time"
)

// Passive health: what traffic shows of a server.
const (
	strikesOut = 5                // faults in a row after which a server is passed over
	failedBase = time.Second      // for so long, and twice as long each time
	failedMax  = 30 * time.Second // up to so long; after so long in good health it begins anew
	slowStart  = 10 * time.Second // over so long a server that is back is given its full share
)

// verdict is what an exchange showed of its server.
type verdict uint8

const (
	unknown verdict = iota // the client's fault, or nobody's
	sound
	faulty
)

// server is one address of an origin. Its fields below the blank line belong to Origin.mu.
type server struct {
	url       string // as configured
	addr      string // host:port to dial
	port      string
	name      *name  // nil for an address
	authority string // Host where it is not preserved
	tls       *tls.Config
	bit       uint64 // of those that a request has tried

	inUse int
	used  uint64        // when it was last chosen, in choices
	idle  []*originConn // oldest first
	health
}

// servers are those of an origin. Origin.mu guards them, and their methods are called with it held.
type servers struct {
	all     []*server
	choices uint64 // made so far
}

// health is what is known of a server. Its zero value is good health.
type health struct {
	hurt    bool // anything below is not as in the zero value
	strikes int  // faults in a row
	fails   int  // times it was passed over without a time of good health in between
	until   time.Time
	refused bool      // it is passed over because it could not be connected to
	trial   bool      // it was passed over and has not shown since that it works
	risen   time.Time // since when it works again
	down    bool      // by checks of its own
	checks  int       // of those in a row that say the opposite of down
	reason  string    // why it is out, for operators
}

// How willingly a server is chosen: those of a worse rank only where no better is left.
const (
	rankIn      = iota
	rankOut     // its answers or checks are bad
	rankRefused // it cannot be connected to
)

// usual is a load's unit: a server in good health carries usual for each connection in use.
const usual = 1 << 8

// Change tells that a server was taken out or is back.
type Change struct {
	Server string // as configured
	Up     bool
	Reason string // why it is out; not for visitors
}

// up tells whether the server has its place among those that are chosen.
func (h *health) up() bool { return !h.down && !h.trial }

// rank tells how willingly the server is chosen now, and how loaded it counts. Call it with mu held.
func (s *server) rank(now time.Time) (int, int) {
	load := s.inUse * usual
	switch {
	case !s.hurt:
	case s.refused && now.Before(s.until):
		return rankRefused, load
	case s.down || now.Before(s.until):
		return rankOut, load
	case s.trial:
		load *= usual // about one request at a time
	case !s.risen.IsZero():
		if since := now.Sub(s.risen); since < slowStart {
			load = load * 10 * int(slowStart/time.Millisecond) / int((slowStart+9*max(since, 0))/time.Millisecond)
		}
		s.recover(now)
	}
	return rankIn, load
}

// recover forgets former failures after a time of good health.
func (h *health) recover(now time.Time) {
	if !h.risen.IsZero() && now.Sub(h.risen) >= failedMax {
		h.fails, h.risen, h.hurt = 0, time.Time{}, h.strikes > 0 || h.down
	}
}

// choose gives the least loaded server of those with the best rank, and of equal ones the one that was not chosen for
// the longest; the server last, if there is one, comes last of its rank. Call it with mu held.
func (p *servers) choose(now time.Time, tried uint64, last *server) (best *server, bestRank int) {
	bestLoad := 0
	for _, s := range p.all {
		if tried&s.bit != 0 {
			continue
		}
		rank, load := s.rank(now)
		if s == last {
			load = math.MaxInt
		}
		if best == nil || rank < bestRank || rank == bestRank && (load < bestLoad || load == bestLoad && s.used < best.used) {
			best, bestRank, bestLoad = s, rank, load
		}
	}
	if best != nil {
		p.choices++
		best.used = p.choices
	}
	return best, bestRank
}

// judge notes what an exchange showed. Call it with mu held and report what it returns without.
func (p *servers) judge(s *server, v verdict, why string, now time.Time) *Change {
	switch {
	case v == unknown || now.Before(s.until): // begun before it was taken out
		return nil
	case v == sound:
		s.strikes = 0
		if !s.trial {
			s.hurt = s.down || s.fails > 0 || !s.risen.IsZero()
			return nil
		}
		return s.bringBack(now)
	}
	s.hurt = true
	s.strikes++
	if s.strikes < strikesOut && !s.trial || !s.trial && !p.spare() {
		return nil
	}
	return s.passOver(why, false, now)
}

// spare tells whether one more server may be passed over for its answers: half of them at least stay, so that what
// ails all of them takes out none.
func (p *servers) spare() bool {
	out := 0
	for _, s := range p.all {
		if !s.up() {
			out++
		}
	}
	return 2*(out+1) <= len(p.all)
}

func (s *server) passOver(why string, refused bool, now time.Time) *Change {
	was := s.up()
	s.recover(now)
	d := failedMax
	if s.fails < 5 {
		d = failedBase << s.fails
	}
	s.fails++
	s.hurt, s.trial, s.refused, s.strikes, s.until, s.reason, s.risen = true, true, refused, 0, now.Add(d), why, time.Time{}
	if !was {
		return nil
	}
	return &Change{Server: s.url, Reason: why}
}

func (s *server) bringBack(now time.Time) *Change {
	s.trial, s.refused, s.until, s.risen = false, false, time.Time{}, now
	if !s.up() {
		return nil
	}
	s.reason = ""
	return &Change{Server: s.url, Up: true}
}

// failed notes that a server could not be connected to, since begun: it is passed over for a while, longer each time.
// An attempt that the request's own deadline cut short, or for which this machine had no means, says nothing.
func (o *Origin) failed(s *server, err error, begun time.Time) {
	now := time.Now()
	enough := o.cfg.ConnectTimeout
	if t := o.cfg.Timeout; t > 0 {
		enough = min(enough, t)
	}
	if rawsocket.IsTimeout(err) && now.Sub(begun) < enough/2 || ownFault(err) {
		o.drop(s)
		return
	}
	o.mu.Lock()
	s.inUse--
	var c *Change
	if !now.Before(s.until) || !s.refused { // else it was another attempt of the same time
		c = s.passOver(err.Error(), true, now)
	}
	o.mu.Unlock()
	o.report(c)
}

// ownFault tells that this machine had no descriptor, memory or port for another connection.
func ownFault(err error) bool {
	for _, e := range [...]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// worked notes that a server which could not be connected to can be now.
func (o *Origin) worked(s *server, now time.Time) {
	o.mu.Lock()
	var c *Change
	if s.refused {
		c = s.bringBack(now)
	}
	o.mu.Unlock()
	o.report(c)
}

// OnChange has f called with each change of a server's health. Call it before anything else.
func (o *Origin) OnChange(f func(Change)) { o.onChange = f }

func (o *Origin) report(c *Change) {
	if c != nil && o.onChange != nil {
		o.onChange(*c)
	}
}

// errNoneHealthy says of a failure that it came of trying a server that was out, because all were.
type errNoneHealthy struct {
	error
	why string
}

func (e *errNoneHealthy) Error() string {
	return fmt.Sprintf("%v (no server was healthy: %s)", e.error, e.why)
}

func (e *errNoneHealthy) Unwrap() error { return e.error }

// noneHealthy says why, for a request that was sent to a server that was out.
func (o *Origin) noneHealthy(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	why := ""
	for _, s := range o.servers.all {
		if s.up() {
			continue
		}
		if why != "" {
			why += "; "
		}
		why += s.url + ": " + s.reason
	}
	return &errNoneHealthy{err, why}
}

// Adopt takes over what old knows of the health of those servers that both have, and which addresses their names had:
// those are used where a lookup fails. Call it before anything is carried.
func (o *Origin) Adopt(old *Origin) {
	known := map[string]health{}
	names := map[string]*name{}
	old.mu.Lock()
	for _, s := range old.servers.all {
		known[s.url], names[s.url] = s.health, s.name
	}
	old.mu.Unlock()
	for _, s := range o.servers.all {
		if before := names[s.url]; before != nil {
			s.name.adopt(before)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.servers.all {
		s.health = known[s.url]
		if o.cfg.Health.Path == "" {
			s.down, s.checks = false, 0
		}
	}
}
