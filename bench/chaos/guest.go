package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/visitor"
)

// guest is one visitor.
type guest struct {
	record
	crowd    *crowd
	rng      *rand.Rand
	cred     visitor.Credentials
	habits   habits
	ticket   string // its ID
	presence visitor.Presence
	sid      string // of the session
	thief    thief
}

// habits are what a guest does besides waiting and shopping.
type habits struct {
	leaves  bool // leaves the queue after a few polls
	copied  bool // another client has the token and tries to claim first
	repeats bool // claims again through another gateway
}

// record is what happened to a guest, to be judged. Times are µs of this machine's clock, which is also Redis's.
type record struct {
	sent, answered int64 // the join
	confirmed      int64 // when a response first confirmed that the store holds the place; 0: none did
	waited         bool  // has had a token
	order          int64 // of the token
	absent         bool
	lostJoins      int      // joins without a key and without a response
	at             int64    // admitted_at; 0: not admitted
	out            int64    // when it began to leave the queue or to end its session
	left           bool     // left the queue
	waiting        bool     // at the end
	trace          []string // requests and responses
}

// note adds a line to the trace.
func (g *guest) note(began time.Time, gateway int, a visitor.Response, err error) {
	what := fmt.Sprintf("%d %s %s position %d", a.HTTP, a.Status.State, a.Status.Code, a.Status.Position)
	if err != nil {
		what = err.Error()
	}
	g.trace = append(g.trace, fmt.Sprintf("%s +%d ms, gateway %d: %s", began.Format("05.000"), time.Since(began).Milliseconds(), gateway, what))
}

// thief is a client with a copy of a token and another nonce.
type thief struct {
	run        sync.WaitGroup
	started    bool
	cred       visitor.Credentials // with the pass if it claimed first; valid after run
	at         int64
	sid        string
	unanswered bool // a claim had no response: it may have made a session that no client has
}

func micros() int64 { return time.Now().UnixMicro() }

// visit plays the guest.
func (g *guest) visit(ctx context.Context) {
	defer g.thief.run.Wait()
	if !g.join(ctx) {
		return
	}
	for polls := 0; g.at == 0; polls++ {
		if g.habits.leaves && polls >= 3 {
			g.leave(ctx)
			return
		}
		if !rig.Sleep(ctx, g.presence.Interval) {
			g.waiting = true
			return
		}
		if !g.poll(ctx) {
			return
		}
	}
	g.shop(ctx)
}

// ask sends a request to random gateways until one responds.
func (g *guest) ask(ctx context.Context, request func(*visitor.Client) (visitor.Response, error)) (visitor.Response, bool) {
	for {
		n := g.rng.IntN(len(g.crowd.clients))
		began := time.Now()
		a, err := request(g.crowd.clients[n])
		g.note(began, n, a, err)
		if err == nil && a.HTTP != http.StatusServiceUnavailable && a.HTTP != http.StatusBadGateway {
			g.crowd.took(time.Since(began))
			return a, true
		}
		if err != nil {
			g.crowd.Add(&g.crowd.counts.Unanswered, 1)
		} else {
			g.crowd.odd(fmt.Sprintf("%d %s", a.HTTP, a.Status.Code))
		}
		if !rig.Sleep(ctx, 50*time.Millisecond+time.Duration(g.rng.IntN(200))*time.Millisecond) {
			return a, false
		}
	}
}

func (g *guest) join(ctx context.Context) bool {
	g.sent = micros()
	a, ok := g.ask(ctx, func(c *visitor.Client) (visitor.Response, error) {
		a, err := c.Join(&g.cred)
		if err != nil && g.cred.Key == "" && !errors.Is(err, syscall.ECONNREFUSED) {
			g.lostJoins++
		}
		return a, err
	})
	if !ok {
		return false
	}
	now := time.Now()
	g.answered = now.UnixMicro()
	if g.cred.Token == "" && g.cred.Pass == "" {
		g.crowd.fault("a join was answered %d %s", a.HTTP, a.Status.Code)
		return false
	}
	return g.receive(ctx, a, now)
}

func (g *guest) poll(ctx context.Context) bool {
	a, ok := g.ask(ctx, func(c *visitor.Client) (visitor.Response, error) { return c.Status(&g.cred) })
	if !ok {
		g.waiting = true
		return false
	}
	g.crowd.Add(&g.crowd.counts.Polls, 1)
	return g.receive(ctx, a, time.Now())
}

// receive records a response. It returns false if the visit is over.
func (g *guest) receive(ctx context.Context, a visitor.Response, now time.Time) bool {
	if a.HTTP != http.StatusOK && a.HTTP != http.StatusCreated {
		g.crowd.fault("a status was answered %d %s", a.HTTP, a.Status.Code)
		return false
	}
	switch a.Status.State {
	case "waiting", "admitted", "active":
	default:
		if a.Status.State == "ended" && g.thief.started {
			return g.robbed()
		}
		g.crowd.lose("a place became %s %s", a.Status.State, a.Status.Reason)
		g.crowd.explain(g)
		return false
	}
	if g.cred.Token != "" && !g.keep(now) {
		return false
	}
	g.absent = g.presence.Received(now) || g.absent
	g.presence.Advise(&a)
	if g.cred.Pass != "" {
		return g.admitted(&a)
	}
	if g.worthCopying(a.Status.Position) && !g.thief.started {
		g.thief.started = true
		seed := g.rng.Uint64()
		g.thief.run.Go(func() { g.steal(ctx, g.cred.Token, rand.New(rand.NewPCG(seed, 3))) }) //nolint:gosec // the seed repeats the run
	}
	return true
}

// worthCopying reports whether another client is to copy the token of a guest at a position. The copy of a guest without a nonce, to whom
// a join without the store gave none, is the same client: it would receive the same session.
func (g *guest) worthCopying(position int64) bool {
	return g.habits.copied && g.cred.Nonce != "" && g.confirmed > 0 && position > 0 && float64(position) < 2*g.crowd.o.rate
}

// keep compares the place in the newest token with the one before.
func (g *guest) keep(now time.Time) bool {
	p, err := visitor.Decode(g.cred.Token)
	if err != nil || p.Order == nil {
		g.crowd.fault("token: %v", err)
		return false
	}
	switch {
	case g.waited && p.ID != g.ticket:
		g.crowd.lose("ticket %s became %s", g.ticket, p.ID)
		return false
	case g.confirmed > 0 && *p.Order != g.order:
		g.crowd.lose("the order of a ticket the store held went from %d to %d", g.order, *p.Order)
		return false
	}
	// The epoch is "?" in the tokens of a gateway that has never reached the store.
	if g.confirmed == 0 && p.Confirmed() && string(p.Epoch) != `"?"` {
		g.confirmed = now.UnixMicro()
	}
	g.ticket, g.order, g.waited = p.ID, *p.Order, true
	return true
}

// admitted records the session.
func (g *guest) admitted(a *visitor.Response) bool {
	at, sid, err := session(a, g.cred.Pass)
	if err != nil {
		g.crowd.fault("admitted: %v", err)
		return false
	}
	g.at, g.sid = at, sid
	g.crowd.Add(&g.crowd.counts.Admitted, 1)
	g.thief.run.Wait()
	if g.thief.at != 0 {
		g.crowd.double("ticket %s made sessions for two clients", g.ticket)
		g.crowd.explain(g)
	}
	return true
}

// session returns when a session was admitted and its ID.
func session(r *visitor.Response, pass string) (at int64, sid string, err error) {
	p, err := visitor.Decode(pass)
	if at = r.AdmittedAt(); at == 0 && err == nil {
		err = fmt.Errorf("admitted_at is %q", r.Status.AdmittedAt)
	}
	return at, p.Session, err
}

// robbed handles a ticket that the copy has spent. The thief must have the session.
func (g *guest) robbed() bool {
	g.thief.run.Wait()
	switch {
	case g.thief.at != 0:
	case g.thief.unanswered:
		g.crowd.odd("the claim of a copy had no response or 503, and its ticket is spent")
		return false
	default:
		g.crowd.lose("a ticket is spent and neither of two clients has its session")
		g.crowd.explain(g)
		return false
	}
	g.at, g.sid, g.cred = g.thief.at, g.thief.sid, g.thief.cred
	g.crowd.Add(&g.crowd.counts.Robbed, 1)
	return true
}

// steal claims with a copied token until a client has the session.
func (g *guest) steal(ctx context.Context, token string, rng *rand.Rand) {
	for rig.Sleep(ctx, time.Duration(50+rng.IntN(200))*time.Millisecond) {
		cred := visitor.Credentials{Token: token, Cookies: true} // without the nonce
		c := g.crowd.clients[rng.IntN(len(g.crowd.clients))]
		a, err := c.Claim(&cred)
		switch {
		case err != nil:
			g.thief.unanswered = g.thief.unanswered || !errors.Is(err, syscall.ECONNREFUSED)
			continue
		case a.HTTP == http.StatusServiceUnavailable:
			g.thief.unanswered = true // a store that timed out may have made the session
			continue
		case a.HTTP == http.StatusConflict:
			continue
		case a.HTTP == http.StatusGone:
			return
		case cred.Pass == "":
			g.crowd.fault("a claim with a copied token was answered %d %s", a.HTTP, a.Status.Code)
			return
		}
		at, sid, err := session(&a, cred.Pass)
		if err != nil {
			g.crowd.fault("a claim with a copied token: %v", err)
		}
		g.thief.cred, g.thief.at, g.thief.sid = cred, at, sid
		return
	}
}

// leave leaves the queue.
func (g *guest) leave(ctx context.Context) {
	g.out = micros()
	a, ok := g.ask(ctx, func(c *visitor.Client) (visitor.Response, error) { return c.Leave(&g.cred) })
	if ok && a.HTTP != http.StatusNoContent {
		g.crowd.fault("leaving was answered %d %s", a.HTTP, a.Status.Code)
	}
	g.left = ok
}

// shop uses the session through any gateway, with or without the store, and ends it.
func (g *guest) shop(ctx context.Context) {
	for range 1 + g.rng.IntN(3) {
		if !rig.Sleep(ctx, time.Second+time.Duration(g.rng.IntN(1500))*time.Millisecond) || !g.visits(ctx, "/") {
			return
		}
	}
	if g.habits.repeats && g.waited {
		g.repeat(ctx)
	}
	g.out = micros()
	g.visits(ctx, "/bye")
}

// visits requests a path of the site with the pass.
func (g *guest) visits(ctx context.Context, path string) bool {
	a, ok := g.ask(ctx, func(c *visitor.Client) (visitor.Response, error) { return c.Visit(&g.cred, path) })
	if ok && (a.HTTP != http.StatusOK || a.Room != "") {
		// /bye may have ended the session and lost its response.
		if path == "/" {
			g.crowd.fault("a good pass was answered %d %s %s", a.HTTP, a.Room, a.Status.Code)
		}
		return false
	}
	g.crowd.Add(&g.crowd.counts.Passes, 1)
	return ok
}

// repeat claims the session again.
func (g *guest) repeat(ctx context.Context) {
	cred := g.cred
	cred.Pass = ""
	a, ok := g.ask(ctx, func(c *visitor.Client) (visitor.Response, error) { return c.Claim(&cred) })
	if !ok {
		return
	}
	at, sid, err := session(&a, cred.Pass)
	if err != nil || at != g.at || sid != g.sid {
		g.crowd.fault("a repeated claim was answered %d %s: session %s of %d, before %s of %d", a.HTTP, a.Status.Code, sid, at, g.sid, g.at)
	}
	g.crowd.Add(&g.crowd.counts.Repeated, 1)
}
