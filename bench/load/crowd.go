package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

// crowdOptions describe what the visitors do.
type crowdOptions struct {
	Visitors   int
	Arrive     time.Duration // they arrive evenly over this; 0: all at once
	Requests   int           // with the pass
	Silent     float64       // share that stops polling
	JudgeAfter time.Duration // estimates that are shown from then on are judged
}

// thinkTime is the pause between two requests with a pass.
const thinkTime = 200 * time.Millisecond

// phase is the state of a visit.
type phase uint8

const (
	joining phase = iota
	waiting
	shopping
	done     // admitted and finished
	vanished // stopped polling
)

// person is one visitor of the crowd. Only the worker that has the job changes it.
type person struct {
	cred visitor.Credentials
	visitor.Place
	visitor.Presence

	phase  phase
	lost   string // why the place was lost; empty if it was not
	silent bool   // stops polling at a random time of the wait that was shown first
	absent bool   // was absent at some time

	joinSent, answered time.Time
	admittedAt         int64     // microseconds; 0 if unknown
	failures           int       // connection errors and 5xx in a row
	polls, visits      int       // visits: requests with the pass
	goes               time.Time // when a silent visitor stops polling; zero if not known yet
	shown              []shownEstimate
}

// crowd plays all visitors with a fixed number of workers.
type crowd struct {
	opt     crowdOptions
	client  *visitor.Client
	people  []person
	workers int
	*schedule

	remaining            atomic.Int64
	joins, polls, visits *latency

	table.Counts
	counts CrowdReport // counts so far; report completes the rest
}

func newCrowd(opt crowdOptions, client *visitor.Client, workers int) *crowd {
	c := &crowd{
		opt: opt, client: client, workers: workers, people: make([]person, opt.Visitors),
		joins: newLatency(), polls: newLatency(), visits: newLatency(),
		counts: CrowdReport{Visitors: opt.Visitors, Lost: table.Causes{}, Unexpected: table.Causes{}},
	}
	c.remaining.Store(int64(opt.Visitors))
	return c
}

// run returns when every visitor has finished or ctx ends.
func (c *crowd) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.schedule = newSchedule()
	silent := int(c.opt.Silent * float64(c.opt.Visitors))
	for i, k := range rand.Perm(c.opt.Visitors) {
		c.people[i].silent = k < silent
		c.add(i, c.opt.Arrive*time.Duration(i)/time.Duration(c.opt.Visitors))
	}
	// Each makes one request, and returns when the next one is due, or that there is none.
	steps := map[phase]func(*person) (wait time.Duration, more bool){joining: c.join, waiting: c.poll, shopping: c.shop}
	c.schedule.run(ctx, c.workers, func(job int) {
		p := &c.people[job]
		step := steps[p.phase]
		if wait, more := step(p); more {
			c.add(job, time.Since(c.start)+wait)
		} else if c.remaining.Add(-1) == 0 {
			stop()
		}
	})
	c.counts.Seconds = time.Since(c.start).Seconds()
}

// failed reports whether a request is to be repeated.
func failed(r visitor.Response, err error) bool {
	return err != nil || r.HTTP >= 500 || r.HTTP == http.StatusTooManyRequests
}

func (c *crowd) join(p *person) (time.Duration, bool) {
	start := time.Now()
	if p.joinSent.IsZero() {
		p.joinSent = start
	}
	a, err := c.client.Join(&p.cred)
	if failed(a, err) {
		return c.again(p, a, err)
	}
	now := time.Now()
	c.joins.record(now.Sub(start))
	if p.cred.Token == "" && p.cred.Pass == "" {
		c.Add(&c.counts.RefusedJoins, 1) // a closed, draining or full room may open again
		c.unexpected("join", a)
		return c.backoff(p, a.RetryAfter), true
	}
	if p.answered.IsZero() {
		p.answered = now
		c.Add(&c.counts.Joined, 1)
	}
	p.failures = 0
	c.follow(p, now)
	if p.cred.Pass != "" {
		return c.admitted(p, a)
	}
	p.phase = waiting
	c.Add(&c.counts.StillWaiting, 1)
	p.noteEstimate(&a, now)
	return p.Advise(&a), true
}

// follow records a response and the place that its token describes.
func (c *crowd) follow(p *person, now time.Time) {
	if p.Received(now) && p.phase == waiting {
		p.absent = true
	}
	if p.cred.Token == "" {
		return
	}
	if lost, err := p.Update(p.cred.Token); err != nil {
		c.lose(p, err.Error())
	} else if lost != "" {
		c.lose(p, lost)
	}
}

func (c *crowd) poll(p *person) (time.Duration, bool) {
	if p.silent && p.hasGone() {
		p.phase = vanished
		c.Add(&c.counts.StillWaiting, -1)
		c.Add(&c.counts.Gone, 1)
		return 0, false
	}
	start := time.Now()
	a, err := c.client.Status(&p.cred)
	if failed(a, err) {
		return c.again(p, a, err)
	}
	now := time.Now()
	c.polls.record(now.Sub(start))
	p.polls++
	p.failures = 0
	switch {
	case a.HTTP == http.StatusUnauthorized:
		return c.rejoin(p, "token refused (401)")
	case a.HTTP != http.StatusOK:
		c.unexpected("status", a)
		return c.backoff(p, a.RetryAfter), true
	case a.Status.State == "lapsed" || a.Status.State == "ended":
		return c.rejoin(p, a.Status.State)
	case a.Status.State == "expired":
		c.lose(p, "expired: "+a.Status.Reason)
		p.Place = visitor.Place{} // the token in the response is a new place
	}
	c.follow(p, now)
	if p.cred.Pass == "" && (a.Status.State == "admitted" || a.Status.State == "active") {
		if a, err = c.client.Claim(&p.cred); failed(a, err) {
			return c.again(p, a, err)
		} else if a.HTTP == http.StatusGone {
			return c.rejoin(p, "claim: gone (410)")
		}
	}
	if p.cred.Pass != "" {
		c.Add(&c.counts.StillWaiting, -1)
		return c.admitted(p, a)
	}
	p.noteEstimate(&a, now)
	return p.Advise(&a), true
}

// hasGone reports whether a silent visitor has stopped polling: at a time of the wait that was shown first, all times being
// equally likely. A visitor who was shown no wait stops after two polls.
func (p *person) hasGone() bool {
	if len(p.shown) == 0 {
		return p.polls >= 2
	}
	if p.goes.IsZero() {
		wait := time.Duration(float64(p.shown[0].seconds) * float64(time.Second))
		p.goes = time.UnixMicro(p.shown[0].at).Add(rand.N(max(wait, 1))) //nolint:gosec // a simulation
	}
	return !time.Now().Before(p.goes)
}

func (c *crowd) admitted(p *person, a visitor.Response) (time.Duration, bool) {
	p.admittedAt = a.AdmittedAt()
	p.phase = shopping
	c.Add(&c.counts.Admitted, 1)
	if c.opt.Requests == 0 {
		return c.finish(p)
	}
	return 0, true
}

func (c *crowd) shop(p *person) (time.Duration, bool) {
	start := time.Now()
	a, err := c.client.Visit(&p.cred, "/")
	if err != nil {
		return c.again(p, a, err)
	}
	c.visits.record(time.Since(start))
	p.failures = 0
	p.visits++
	switch {
	case a.Room == "waiting" || a.HTTP == http.StatusUnauthorized || a.HTTP == http.StatusAccepted && a.Room != "":
		c.Add(&c.counts.BadPasses, 1)
		c.unexpected("request with a pass", a)
	case a.HTTP >= 500:
		c.Add(&c.counts.ServerErrors, 1)
		c.unexpected("request with a pass", a)
	}
	if p.visits >= c.opt.Requests {
		return c.finish(p)
	}
	return thinkTime, true
}

func (c *crowd) finish(p *person) (time.Duration, bool) {
	p.phase = done
	p.cred = visitor.Credentials{}
	return 0, false
}

func (c *crowd) lose(p *person, why string) {
	if p.lost == "" {
		p.lost = why
		c.Note(c.counts.Lost, why, 1)
	}
}

// rejoin is for a ticket that is refused: the visitor joins again.
func (c *crowd) rejoin(p *person, why string) (time.Duration, bool) {
	c.lose(p, why)
	c.Add(&c.counts.StillWaiting, -1)
	p.cred.Token, p.cred.Pass = "", ""
	p.Place, p.phase = visitor.Place{}, joining
	return c.backoff(p, 0), true
}

// again repeats a request that failed, after a pause.
func (c *crowd) again(p *person, a visitor.Response, err error) (time.Duration, bool) {
	if err != nil {
		c.Add(&c.counts.ConnErrors, 1)
	} else {
		c.Add(&c.counts.ServerErrors, 1)
		c.unexpected("answer", a)
	}
	return c.backoff(p, a.RetryAfter), true
}

// backoff doubles from a quarter of a second to four seconds, or is Retry-After up to ten, with a fifth of jitter.
func (c *crowd) backoff(p *person, retryAfter time.Duration) time.Duration {
	d := min(250*time.Millisecond<<min(p.failures, 4), 4*time.Second)
	if retryAfter > 0 {
		d = min(retryAfter, 10*time.Second)
	}
	p.failures++
	return d - d/5 + rand.N(d*2/5) //nolint:gosec // jitter is no secret
}

// unexpected counts an unexpected response.
func (c *crowd) unexpected(what string, a visitor.Response) {
	key := fmt.Sprintf("%s: %d", what, a.HTTP)
	if a.Status.Code != "" {
		key += " " + a.Status.Code
	}
	c.Note(c.counts.Unexpected, key, 1)
}

// line returns a function that returns the line of progress; admissions a second are the mean since the last call.
func (c *crowd) line() func() string {
	speed := speedometer()
	return func() string {
		joins, polls := c.joins.quantiles(), c.polls.quantiles()
		c.Lock()
		defer c.Unlock()
		r := &c.counts
		return fmt.Sprintf("joined %d · waiting %d · admitted %d (%.1f/s) · lost %d · polls p50 %.1f p99 %.1f ms · joins p50 %.1f p99 %.1f ms · errors %d",
			r.Joined, r.StillWaiting, r.Admitted, speed(r.Admitted), r.Lost.Sum(), polls.P50, polls.P99, joins.P50, joins.P99, r.ConnErrors+r.ServerErrors)
	}
}
