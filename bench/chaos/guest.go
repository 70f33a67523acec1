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

	"github.com/anteroom/anteroom/bench/visitor"
)

// guest is one visitor and what it was told. Times are µs of this machine's clock, which is Redis's.
type guest struct {
	crowd *crowd
	rng   *rand.Rand
	cred  visitor.Credentials

	leaves  bool // gives the place up after a few polls
	copied  bool // somebody else has the token and races for the session
	repeats bool // claims again through another gateway

	sent, answered int64 // the join
	confirmed      int64 // when the answer came that showed the store holding the place
	waited         bool  // has had a place in line
	place          visitor.Claims
	heard          time.Time
	interval       time.Duration
	absent         bool
	lostJoins      int // answers that did not come, to joins without a key

	at      int64 // admitted_at; 0: not let in as far as it knows
	sid     string
	out     int64 // when it began to leave, by giving the place up or by ending its session
	left    bool  // the place was given up
	waiting bool  // at the end

	thief thief
	trace []string // what it asked and was told, for a report that has to explain itself
}

// note keeps one line of the trace.
func (g *guest) note(began time.Time, gateway int, a visitor.Answer, err error) {
	what := fmt.Sprintf("%d %s %s position %d", a.HTTP, a.Status.State, a.Status.Code, a.Status.Position)
	if err != nil {
		what = err.Error()
	}
	g.trace = append(g.trace, fmt.Sprintf("%s +%d ms, gateway %d: %s", began.Format("05.000"), time.Since(began).Milliseconds(), gateway, what))
}

// thief is somebody with a copy of a token and another nonce.
type thief struct {
	run     sync.WaitGroup
	started bool
	cred    visitor.Credentials // with the pass, where it was the first; read it after run
	at      int64
	sid     string
	unheard bool // a claim was sent and got no answer: the session that it may have made is nobody's, as no nonce was kept
}

func micros() int64 { return time.Now().UnixMicro() }

// visit is a guest's whole way.
func (g *guest) visit(ctx context.Context) {
	defer g.thief.run.Wait()
	if !g.join(ctx) {
		return
	}
	for polls := 0; g.at == 0; polls++ {
		if g.leaves && polls >= 3 {
			g.leave(ctx)
			return
		}
		if !sleep(ctx, g.interval) {
			g.waiting = true
			return
		}
		if !g.poll(ctx) {
			return
		}
	}
	g.shop(ctx)
}

// ask makes a request through gateways at random until one answers it.
func (g *guest) ask(ctx context.Context, request func(*visitor.Client) (visitor.Answer, error)) (visitor.Answer, bool) {
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
			g.crowd.unanswered.Add(1)
		} else {
			g.crowd.note(fmt.Sprintf("%d %s", a.HTTP, a.Status.Code))
		}
		if !sleep(ctx, 50*time.Millisecond+time.Duration(g.rng.IntN(200))*time.Millisecond) {
			return a, false
		}
	}
}

func (g *guest) join(ctx context.Context) bool {
	g.sent = micros()
	a, ok := g.ask(ctx, func(c *visitor.Client) (visitor.Answer, error) {
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
	return g.hear(ctx, a, now)
}

func (g *guest) poll(ctx context.Context) bool {
	a, ok := g.ask(ctx, func(c *visitor.Client) (visitor.Answer, error) { return c.Status(&g.cred) })
	if !ok {
		g.waiting = true
		return false
	}
	g.crowd.polls.Add(1)
	return g.hear(ctx, a, time.Now())
}

// hear takes an answer in; false when it ends the visit.
func (g *guest) hear(ctx context.Context, a visitor.Answer, now time.Time) bool {
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
	if present := max(30*time.Second, 2*g.interval+10*time.Second); !g.heard.IsZero() && now.Sub(g.heard) > present {
		g.absent = true
	}
	g.heard, g.interval = now, time.Duration(a.Status.RefreshAfter*float64(time.Second))
	if g.interval <= 0 {
		g.interval = time.Second
	}
	if g.cred.Pass != "" {
		return g.letIn(a.Status.AdmittedAt)
	}
	if g.copied && !g.thief.started && a.Status.Position > 0 && float64(a.Status.Position) < 2*g.crowd.o.rate && g.confirmed > 0 {
		g.thief.started = true
		seed := g.rng.Uint64()
		g.thief.run.Go(func() { g.steal(ctx, g.cred.Token, rand.New(rand.NewPCG(seed, 3))) }) //nolint:gosec // the seed repeats the run
	}
	return true
}

// keep compares the place in the newest token with what it was.
func (g *guest) keep(now time.Time) bool {
	p, err := visitor.Decode(g.cred.Token)
	if err != nil || p.Order == nil {
		g.crowd.fault("token: %v", err)
		return false
	}
	switch {
	case g.waited && p.ID != g.place.ID:
		g.crowd.lose("ticket %s became %s", g.place.ID, p.ID)
		return false
	case g.confirmed > 0 && *p.Order != *g.place.Order:
		g.crowd.lose("the order of a ticket the store held went from %d to %d", *g.place.Order, *p.Order)
		return false
	}
	// "?" marks the order of a gateway that never heard the store.
	if g.confirmed == 0 && p.Confirmed() && string(p.Epoch) != `"?"` {
		g.confirmed = now.UnixMicro()
	}
	g.place, g.waited = p, true
	return true
}

func (g *guest) letIn(admittedAt string) bool {
	at, sid, err := session(admittedAt, g.cred.Pass)
	if err != nil {
		g.crowd.fault("let in: %v", err)
		return false
	}
	g.at, g.sid = at, sid
	g.crowd.in.Add(1)
	g.thief.run.Wait()
	if g.thief.at != 0 {
		g.crowd.double("ticket %s made sessions for two clients", g.place.ID)
	}
	return true
}

func session(admittedAt, pass string) (at int64, sid string, err error) {
	t, err := time.Parse(time.RFC3339Nano, admittedAt)
	if err != nil {
		return 0, "", err
	}
	p, err := visitor.Decode(pass)
	return t.UnixMicro(), p.Session, err
}

// robbed is for a ticket that somebody else's copy has spent; that one must have the session then.
func (g *guest) robbed() bool {
	g.thief.run.Wait()
	switch {
	case g.thief.at != 0:
	case g.thief.unheard:
		g.crowd.note("a copy's claim got no answer or 503, and its ticket is spent")
		return false
	default:
		g.crowd.lose("a ticket is spent and neither of two clients has its session")
		g.crowd.explain(g)
		return false
	}
	g.at, g.sid, g.cred = g.thief.at, g.thief.sid, g.thief.cred
	g.crowd.robbed.Add(1)
	return true
}

// steal claims with a copied token until somebody has the session.
func (g *guest) steal(ctx context.Context, token string, rng *rand.Rand) {
	for sleep(ctx, time.Duration(50+rng.IntN(200))*time.Millisecond) {
		cred := visitor.Credentials{Token: token, Cookies: true} // without the nonce
		c := g.crowd.clients[rng.IntN(len(g.crowd.clients))]
		a, err := c.Claim(&cred)
		switch {
		case err != nil:
			g.thief.unheard = g.thief.unheard || !errors.Is(err, syscall.ECONNREFUSED)
			continue
		case a.HTTP == http.StatusServiceUnavailable:
			g.thief.unheard = true // a store that did not answer in time may have made the session
			continue
		case a.HTTP == http.StatusConflict:
			continue
		case a.HTTP == http.StatusGone:
			return
		case cred.Pass == "":
			g.crowd.fault("a claim with a copied token was answered %d %s", a.HTTP, a.Status.Code)
			return
		}
		at, sid, err := session(a.Status.AdmittedAt, cred.Pass)
		if err != nil {
			g.crowd.fault("a claim with a copied token: %v", err)
		}
		g.thief.cred, g.thief.at, g.thief.sid = cred, at, sid
		return
	}
}

// leave gives the place up.
func (g *guest) leave(ctx context.Context) {
	g.out = micros()
	a, ok := g.ask(ctx, func(c *visitor.Client) (visitor.Answer, error) { return c.Leave(&g.cred) })
	if ok && a.HTTP != http.StatusNoContent {
		g.crowd.fault("leaving was answered %d %s", a.HTTP, a.Status.Code)
	}
	g.left = ok
}

// shop, by whoever has the session, uses it through any gateway, whatever state the store is in, and ends it.
func (g *guest) shop(ctx context.Context) {
	for range 1 + g.rng.IntN(3) {
		if !sleep(ctx, time.Second+time.Duration(g.rng.IntN(1500))*time.Millisecond) || !g.visits(ctx, "/") {
			return
		}
	}
	if g.repeats && g.waited {
		g.repeat(ctx)
	}
	g.out = micros()
	g.visits(ctx, "/bye")
}

// visits asks the site for a path with the pass.
func (g *guest) visits(ctx context.Context, path string) bool {
	a, ok := g.ask(ctx, func(c *visitor.Client) (visitor.Answer, error) { return c.Visit(&g.cred, path) })
	if ok && (a.HTTP != http.StatusOK || a.Room != "") {
		// A lost answer to /bye may have ended the session.
		if path == "/" {
			g.crowd.fault("a good pass was answered %d %s %s", a.HTTP, a.Room, a.Status.Code)
		}
		return false
	}
	g.crowd.passes.Add(1)
	return ok
}

// repeat asks for the session again.
func (g *guest) repeat(ctx context.Context) {
	cred := g.cred
	cred.Pass = ""
	a, ok := g.ask(ctx, func(c *visitor.Client) (visitor.Answer, error) { return c.Claim(&cred) })
	if !ok {
		return
	}
	at, sid, err := session(a.Status.AdmittedAt, cred.Pass)
	if err != nil || at != g.at || sid != g.sid {
		g.crowd.fault("a repeated claim was answered %d %s: session %s of %d, before %s of %d", a.HTTP, a.Status.Code, sid, at, g.sid, g.at)
	}
	g.crowd.repeated.Add(1)
}
