package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/visitor"
)

// crowdOptions says what the crowd does.
type crowdOptions struct {
	Visitors   int
	Arrive     time.Duration // spread evenly over this; 0: all at once
	Page       bool          // join by asking for Path, not through POST tickets
	Browser    bool          // as a browser: cookies, HTML
	Path       string
	Requests   int // with the pass
	Think      time.Duration
	Buy        bool
	Abandon    float64
	Silent     float64       // share who go without a word
	JudgeAfter time.Duration // estimates shown from then on are judged
	Idempotent bool
}

// counts are read by the progress line while the crowd runs.
type counts struct {
	joined, inLine, admitted, finished, left, gone, lost atomic.Int64
	connErrors, serverErrors, refusedJoins, badPasses    atomic.Int64
}

// crowd plays every visitor's part with a fixed number of workers.
type crowd struct {
	opt     crowdOptions
	client  *visitor.Client
	people  []person
	agenda  *agenda
	workers int

	counts               counts
	joins, polls, visits *latency
	allJoined            chan struct{} // closed when everybody has a first answer
	allIn                chan struct{} // closed when nobody is left to serve
	remaining            atomic.Int64
	odd                  sync.Mutex
	oddities             map[string]int // unexpected answers, by what they were
	started, finished    time.Time
}

func newCrowd(opt crowdOptions, client *visitor.Client, workers int) *crowd {
	c := &crowd{
		opt: opt, client: client, workers: workers,
		people: make([]person, opt.Visitors), agenda: newAgenda(opt.Visitors),
		joins: newLatency(), polls: newLatency(), visits: newLatency(),
		allJoined: make(chan struct{}), allIn: make(chan struct{}), oddities: map[string]int{},
	}
	c.remaining.Store(int64(opt.Visitors))
	return c
}

// run returns when everybody is through or ctx ends; no goroutine outlives it.
func (c *crowd) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.started = time.Now()
	leaving := int(c.opt.Abandon * float64(c.opt.Visitors))
	silent := leaving + int(c.opt.Silent*float64(c.opt.Visitors))
	for i, k := range mrand.Perm(c.opt.Visitors) {
		p := &c.people[i]
		p.cred.Cookies = c.opt.Browser
		p.abandons, p.silent = k < leaving, k >= leaving && k < silent
		if c.opt.Idempotent {
			p.cred.Key = randomKey()
		}
		c.agenda.add(p, c.started.Add(c.opt.Arrive*time.Duration(i)/time.Duration(c.opt.Visitors)))
	}
	due := make(chan *person)
	var wg sync.WaitGroup
	wg.Go(func() { c.agenda.run(ctx, due) })
	for range c.workers {
		wg.Go(func() {
			for p := range due {
				if wait, more := c.step(p); more {
					c.agenda.add(p, time.Now().Add(wait))
				} else if c.remaining.Add(-1) == 0 {
					close(c.allIn)
				}
			}
		})
	}
	select {
	case <-c.allIn:
	case <-ctx.Done():
	}
	stop()
	wg.Wait()
	c.finished = time.Now()
}

// step makes one request for p and says when p is due again, or that p is through.
func (c *crowd) step(p *person) (wait time.Duration, more bool) {
	switch p.phase {
	case joining:
		return c.join(p)
	case waiting:
		return c.poll(p)
	case shopping:
		return c.shop(p)
	default:
		return 0, false
	}
}

func (c *crowd) join(p *person) (time.Duration, bool) {
	start := time.Now()
	if p.joinSent.IsZero() {
		p.joinSent = start
	}
	var a visitor.Answer
	var err error
	if c.opt.Page {
		a, err = c.client.Visit(&p.cred, c.opt.Path)
	} else {
		a, err = c.client.Join(&p.cred)
	}
	if err != nil || a.HTTP >= 500 && p.cred.Token == "" || a.HTTP == http.StatusTooManyRequests {
		return c.again(p, a, err)
	}
	now := time.Now()
	c.joins.record(now.Sub(start))
	if p.cred.Token == "" && p.cred.Pass == "" {
		// Refused: a room that is closed, draining or full may open again; anything else will not change, but a visitor
		// cannot know that and asks again too.
		c.counts.refusedJoins.Add(1)
		c.note("join", a)
		return c.backoff(p, a.RetryAfter), true
	}
	if p.answered.IsZero() {
		p.answered = now
		if c.counts.joined.Add(1) == int64(len(c.people)) {
			close(c.allJoined)
		}
	}
	p.failures = 0
	p.contact(now)
	if lost, err := p.keep(p.cred.Token); lost != "" || err != nil {
		c.lose(p, fmt.Sprint(lost, err))
	}
	if p.cred.Pass != "" {
		return c.letIn(p, a)
	}
	p.phase = waiting
	c.counts.inLine.Add(1)
	p.noteEstimate(&a, now)
	return c.refresh(p, a), true
}

func (c *crowd) poll(p *person) (time.Duration, bool) {
	if p.abandons && p.polls >= 2 {
		if a, err := c.client.Leave(&p.cred); err != nil || a.HTTP >= 500 {
			return c.again(p, a, err)
		}
		p.phase = left
		c.counts.inLine.Add(-1)
		c.counts.left.Add(1)
		return 0, false
	}
	if p.silent && c.goes(p) {
		p.phase = vanished
		c.counts.inLine.Add(-1)
		c.counts.gone.Add(1)
		return 0, false
	}
	start := time.Now()
	a, err := c.client.Status(&p.cred)
	if err != nil || a.HTTP >= 500 || a.HTTP == http.StatusTooManyRequests {
		return c.again(p, a, err)
	}
	now := time.Now()
	c.polls.record(now.Sub(start))
	p.polls++
	p.failures = 0
	p.contact(now)
	if a.HTTP == http.StatusUnauthorized {
		c.lose(p, "token refused (401)")
		return c.rejoin(p)
	}
	if a.HTTP != http.StatusOK {
		c.note("status", a)
		return c.backoff(p, a.RetryAfter), true
	}
	switch a.Status.State {
	case "expired":
		c.lose(p, "expired: "+a.Status.Reason)
		p.id, p.ordered = "", false // the token that came with it is a new place
	case "lapsed", "ended":
		c.lose(p, a.Status.State)
		return c.rejoin(p)
	}
	if lost, err := p.keep(p.cred.Token); err != nil {
		c.lose(p, err.Error())
	} else if lost != "" {
		c.lose(p, lost)
	}
	if p.cred.Pass != "" {
		c.counts.inLine.Add(-1)
		return c.letIn(p, a)
	}
	if a.Status.State == "admitted" || a.Status.State == "active" {
		return c.claim(p)
	}
	p.noteEstimate(&a, now)
	return c.refresh(p, a), true
}

// goes reports whether a silent visitor has gone by now: at a time of the wait that they were first shown, all times being
// equally likely. Whoever was shown none goes after two polls.
func (c *crowd) goes(p *person) bool {
	if len(p.shown) == 0 {
		return p.polls >= 2
	}
	if p.goes.IsZero() {
		wait := time.Duration(float64(p.shown[0].seconds) * float64(time.Second))
		p.goes = time.UnixMicro(p.shown[0].at).Add(mrand.N(max(wait, 1))) //nolint:gosec // a simulation
	}
	return !time.Now().Before(p.goes)
}

// claim is for a gateway whose status answer did not bring the pass along.
func (c *crowd) claim(p *person) (time.Duration, bool) {
	a, err := c.client.Claim(&p.cred)
	switch {
	case err != nil || a.HTTP >= 500 || a.HTTP == http.StatusTooManyRequests:
		return c.again(p, a, err)
	case a.HTTP == http.StatusGone:
		c.lose(p, "claim: gone (410)")
		return c.rejoin(p)
	case p.cred.Pass == "":
		c.note("claim", a)
		return c.refresh(p, a), true
	}
	c.counts.inLine.Add(-1)
	return c.letIn(p, a)
}

func (c *crowd) letIn(p *person, a visitor.Answer) (time.Duration, bool) {
	if p.admittedAt == 0 && a.Status.AdmittedAt == "" && p.cred.Token != "" {
		// A page that was let in at once does not say when; the status of its ticket does.
		if s, err := c.client.Status(&p.cred); err == nil {
			a = s
		}
	}
	if t, err := time.Parse(time.RFC3339Nano, a.Status.AdmittedAt); err == nil {
		p.admittedAt = t.UnixMicro()
	}
	p.phase = shopping
	c.counts.admitted.Add(1)
	if c.opt.Requests == 0 && !c.opt.Buy {
		return c.finish(p)
	}
	return 0, true
}

func (c *crowd) shop(p *person) (time.Duration, bool) {
	start := time.Now()
	var a visitor.Answer
	var err error
	last := p.visits >= c.opt.Requests
	if last && c.opt.Buy {
		a, err = c.client.PostForm(&p.cred, "/checkout", "event=aurora&quantity=1&name=Load+Generator&email=load%40example.com")
	} else {
		a, err = c.client.Visit(&p.cred, c.opt.Path)
	}
	if err != nil {
		return c.again(p, a, err)
	}
	c.visits.record(time.Since(start))
	p.failures = 0
	p.visits++
	switch {
	case a.Room == "waiting" || a.HTTP == http.StatusUnauthorized || a.HTTP == http.StatusAccepted && a.Room != "":
		c.counts.badPasses.Add(1)
		c.note("request with a pass", a)
	case a.HTTP >= 500:
		c.counts.serverErrors.Add(1)
		c.note("request with a pass", a)
	}
	if last || p.visits >= c.opt.Requests && !c.opt.Buy {
		return c.finish(p)
	}
	return c.opt.Think, true
}

func (c *crowd) finish(p *person) (time.Duration, bool) {
	p.phase = done
	p.cred = visitor.Credentials{}
	c.counts.finished.Add(1)
	return 0, false
}

func (c *crowd) lose(p *person, why string) {
	if p.lost == "" {
		p.lost = why
		c.counts.lost.Add(1)
	}
}

func (c *crowd) rejoin(p *person) (time.Duration, bool) {
	c.counts.inLine.Add(-1)
	p.startOver()
	return c.backoff(p, 0), true
}

// refresh is the advised interval, or two seconds where none came.
func (c *crowd) refresh(p *person, a visitor.Answer) time.Duration {
	p.interval = time.Duration(a.Status.RefreshAfter * float64(time.Second))
	if p.interval <= 0 {
		p.interval = a.RetryAfter
	}
	if p.interval <= 0 {
		p.interval = 2 * time.Second
	}
	return p.interval
}

// again is for what broke or was put off: the same step after a pause.
func (c *crowd) again(p *person, a visitor.Answer, err error) (time.Duration, bool) {
	if err != nil {
		c.counts.connErrors.Add(1)
	} else {
		c.counts.serverErrors.Add(1)
		c.note("answer", a)
	}
	return c.backoff(p, a.RetryAfter), true
}

// backoff doubles from a quarter of a second to four, or follows Retry-After up to ten, with a fifth of jitter.
func (c *crowd) backoff(p *person, retryAfter time.Duration) time.Duration {
	d := min(250*time.Millisecond<<min(p.failures, 4), 4*time.Second)
	if retryAfter > 0 {
		d = min(retryAfter, 10*time.Second)
	}
	p.failures++
	return d - d/5 + mrand.N(d*2/5) //nolint:gosec // jitter is no secret
}

// note counts an answer that a healthy room does not give; the set of keys is bounded by codes.
func (c *crowd) note(what string, a visitor.Answer) {
	key := fmt.Sprintf("%s: %d", what, a.HTTP)
	if a.Status.Code != "" {
		key += " " + a.Status.Code
	}
	c.odd.Lock()
	defer c.odd.Unlock()
	if _, ok := c.oddities[key]; ok || len(c.oddities) < 50 {
		c.oddities[key]++
	}
}

func randomKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}
