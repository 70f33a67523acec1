package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/anteroom/anteroom/gateway/rawsocket"
)

// Passive health, from the responses to visitors.
const (
	strikesOut = 5                // faults in a row that take a server out
	failedBase = time.Second      // for this long, and twice as long each time
	failedMax  = 30 * time.Second // up to this long; after as long in good health the count starts anew
	slowStart  = 10 * time.Second // a server that is back gets its full share after this long
)

// verdict is the result of an exchange for the health of its server.
type verdict uint8

const (
	unknown verdict = iota // no result: the client failed, or the cause is not clear
	sound
	faulty
)

// server is one upstream server of an origin. Origin.mu guards the fields below the blank line.
type server struct {
	url       string // as configured
	addr      string // host:port to dial
	port      string
	name      *name  // nil if the URL has an address
	authority string // Host, if it is not preserved
	tls       *tls.Config
	bit       uint64 // in the set of servers that a request has tried

	inUse int
	used  uint64        // when it was last chosen, in choices
	idle  []*originConn // oldest first
	health
}

// servers are the servers of an origin. Origin.mu guards them, and their methods are called with it held.
type servers struct {
	all     []*server
	choices uint64 // made so far
}

// health is the state of a server. Its zero value is good health.
type health struct {
	hurt    bool // some field below is not zero
	strikes int  // faults in a row
	fails   int  // times it was taken out without a time of good health in between
	until   time.Time
	refused bool      // it is out because it could not be connected to
	trial   bool      // it was taken out and has not worked since
	risen   time.Time // when it was brought back
	down    bool      // according to health checks
	checks  int       // consecutive checks that contradict down
	reason  string    // why it is out, for operators
}

// The ranks of servers: one of a worse rank is chosen only if no better one is left.
const (
	rankIn      = iota
	rankOut     // its responses or checks are bad
	rankRefused // it cannot be connected to
)

// usual is the unit of load: a server in good health has usual for each connection in use.
const usual = 1 << 8

// Change is a server that was taken out or brought back.
type Change struct {
	Server string // as configured
	Up     bool
	Reason string // why it is out; not for visitors
}

// up reports whether the server is not out.
func (h *health) up() bool { return !h.down && !h.trial }

// rank returns the server's rank and its load, by which servers of one rank are compared.
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

// recover clears former failures after a time of good health.
func (h *health) recover(now time.Time) {
	if !h.risen.IsZero() && now.Sub(h.risen) >= failedMax {
		h.fails, h.risen, h.hurt = 0, time.Time{}, h.strikes > 0 || h.down
	}
}

// choose returns the least loaded server of the best rank, and of equal ones the one that was chosen longest ago. The
// server last, if it is not nil, comes last in its rank.
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

// note records a verdict. The caller reports the change, without the mutex.
func (p *servers) note(s *server, v verdict, why string, now time.Time) *Change {
	switch {
	case v == unknown || now.Before(s.until): // the exchange began before the server was taken out
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
	if s.strikes < strikesOut && !s.trial || !s.trial && !p.canSpare() {
		return nil
	}
	return s.takeOut(why, false, now)
}

// canSpare reports whether another server may be taken out for its responses. At least half of them stay, so that a
// fault that all share takes none out.
func (p *servers) canSpare() bool {
	out := 0
	for _, s := range p.all {
		if !s.up() {
			out++
		}
	}
	return 2*(out+1) <= len(p.all)
}

func (s *server) takeOut(why string, refused bool, now time.Time) *Change {
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

// failed records that a server could not be connected to, in an attempt that started at begun: it is taken out for a
// while, longer each time. An attempt that the request's own deadline cut short, or that failed for lack of local
// resources, has no effect.
func (o *Origin) failed(s *server, err error, begun time.Time) {
	now := time.Now()
	enough := o.cfg.ConnectTimeout
	if t := o.cfg.Timeout; t > 0 {
		enough = min(enough, t)
	}
	if rawsocket.IsTimeout(err) && now.Sub(begun) < enough/2 || localFault(err) {
		o.drop(s)
		return
	}
	o.mu.Lock()
	s.inUse--
	var c *Change
	if !now.Before(s.until) || !s.refused { // else it was a concurrent attempt
		c = s.takeOut(err.Error(), true, now)
	}
	o.mu.Unlock()
	report(o.onChange, c)
}

// localFault reports whether this machine lacked a descriptor, memory or a port for another connection.
func localFault(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL},
		func(e error) bool { return errors.Is(err, e) })
}

// worked records that a server could be connected to.
func (o *Origin) worked(s *server, now time.Time) {
	o.mu.Lock()
	var c *Change
	if s.refused {
		c = s.bringBack(now)
	}
	o.mu.Unlock()
	report(o.onChange, c)
}

// OnChange sets a function that is called with each change of a server's health. Call it first.
func (o *Origin) OnChange(f func(Change)) { o.onChange = f }

func report(onChange func(Change), c *Change) {
	if c != nil && onChange != nil {
		onChange(*c)
	}
}

// errNoneHealthy is a failure of a server that was tried although it was out, because all were.
type errNoneHealthy struct {
	error
	why string
}

func (e *errNoneHealthy) Error() string {
	return fmt.Sprintf("%v (no server was healthy: %s)", e.error, e.why)
}

func (e *errNoneHealthy) Unwrap() error { return e.error }

// noneHealthy adds to err why the servers are out.
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

// Adopt copies from old the health of the servers that both have, and the addresses of their names, which are used if
// a lookup fails. Call it before the first request.
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
