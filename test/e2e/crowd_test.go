package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// place is the record of one visitor of a crowd.
type place struct {
	jti, sid   string
	ord        int64 // 0: admitted immediately
	joined     time.Time
	admittedAt string
	at         time.Time // admittedAt
	gateway    *gateway  // at which the visitor was admitted
	token      string
	pass       string
	client     *client
}

// crowd is a number of visitors who join together and poll as advised until they are admitted.
type crowd struct {
	t       testing.TB
	ctx     context.Context
	group   sync.WaitGroup
	gateway func(visitor, try int) *gateway

	mu     sync.Mutex
	number int64 // differs between crowds
	places []place
	faults []string
	joined int
}

var crowds atomic.Int64

// sendCrowd sends n visitors. at returns the gateway of a visitor's nth request; nil: one gateway for all.
func sendCrowd(t testing.TB, g *gateway, n int, at func(visitor, try int) *gateway) *crowd {
	t.Helper()
	if at == nil {
		at = func(int, int) *gateway { return g }
	}
	c := &crowd{t: t, ctx: t.Context(), gateway: at, number: crowds.Add(1)}
	for i := range n {
		c.group.Go(func() { c.visit(i) })
	}
	return c
}

func (c *crowd) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// pause waits as a client does between two requests.
func (c *crowd) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// visit runs one visitor from the join to the admission.
func (c *crowd) visit(i int) {
	who := newClient(c.t, c.gateway(i, 0))
	who.ip = fmt.Sprintf("10.%d.%d.%d", 1+i/62500, i/250%250, 1+i%250)
	p := place{client: who}
	key := headers{"Idempotency-Key": fmt.Sprintf("a-visitor-of-crowd-%04d-%06d", c.number, i)}
	started := time.Now()
	for try := 0; ; try++ {
		if time.Since(started) > 2*time.Minute {
			c.fault("visitor %d is not in after two minutes; token %q", i, p.token)
			return
		}
		g := c.gateway(i, try)
		p.gateway = g
		var a answer
		var err error
		if p.token == "" {
			a, err = who.try(g, http.MethodPost, "/.waiting-room/sale/tickets", "", key)
		} else {
			a, err = who.try(g, http.MethodGet, "/.waiting-room/sale/status", "", headers{"X-Waiting-Room-Token": p.token})
		}
		switch {
		case err != nil: // the gateway is down, or went down with the answer
			if !c.pause(300 * time.Millisecond) {
				return
			}
			continue
		case a.code == http.StatusServiceUnavailable || a.code == http.StatusBadGateway:
			if !c.pause(time.Second) {
				return
			}
			continue
		case a.code != http.StatusOK && a.code != http.StatusCreated:
			c.fault("visitor %d: %s: %d %s", i, a.asked, a.code, a.body)
			return
		}
		s, err := a.parse()
		if err != nil {
			c.fault("visitor %d: %v", i, err)
			return
		}
		if s.Token != "" {
			_, got := decode(c.t, s.Token)
			if p.token == "" {
				p.jti, p.ord, p.joined = got.Jti, got.Ord, time.Now()
				c.mu.Lock()
				c.joined++
				c.mu.Unlock()
			} else if s.State != "expired" && (got.Jti != p.jti || got.Ord != p.ord) {
				c.fault("visitor %d: the renewed token has id %s and order %d, before %s and %d", i, got.Jti, got.Ord, p.jti, p.ord)
			}
			p.token = s.Token
		}
		switch s.State {
		case "waiting":
			if !c.pause(time.Duration(*s.RefreshAfter * float64(time.Second))) {
				return
			}
		case "admitted", "active":
			if p.ord == 0 {
				p.joined = time.Now()
			}
			c.in(&p, s)
			return
		default:
			c.fault("visitor %d lost the place: %s", i, a.body)
			return
		}
	}
}

// in records an admission.
func (c *crowd) in(p *place, s status) {
	at, err := time.Parse(time.RFC3339Nano, s.AdmittedAt)
	if err != nil || s.Pass == "" {
		c.fault("let in without pass or admitted_at: %+v", s)
		return
	}
	_, pass := decode(c.t, s.Pass)
	p.at, p.admittedAt, p.pass, p.sid = at, s.AdmittedAt, s.Pass, pass.Sid
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places = append(c.places, *p)
}

// snapshot returns the visitors admitted so far.
func (c *crowd) snapshot() []place {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.places)
}

// inside returns the number of visitors admitted so far.
func (c *crowd) inside() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.places)
}

func (c *crowd) waitInside(n int) {
	c.t.Helper()
	within(c.t, 90*time.Second, fmt.Sprintf("%d of the crowd are in", n), func() bool { return c.inside() >= n })
}

// wait waits for all visitors and checks that each was admitted once, at the rate and in order.
func (c *crowd) wait(n int, rate, burst float64) []place {
	c.t.Helper()
	c.group.Wait()
	for i, f := range c.faults {
		if i == 10 {
			c.t.Errorf("… and %d more", len(c.faults)-i)
			break
		}
		c.t.Error(f)
	}
	if len(c.places) != n {
		c.t.Errorf("%d of %d are in", len(c.places), n)
	}
	checkRate(c.t, c.places, rate, burst)
	checkOrder(c.t, c.places)
	sids := map[string]bool{}
	for _, p := range c.places {
		if sids[p.sid] {
			c.t.Errorf("two visitors share the session %s", p.sid)
		}
		sids[p.sid] = true
	}
	return c.places
}

// checkRate checks that no interval of any length holds more than rate × length + burst, and no sliding second more than
// rate + burst.
func checkRate(t testing.TB, places []place, rate, burst float64) {
	t.Helper()
	at := make([]int64, 0, len(places))
	for _, p := range places {
		at = append(at, p.at.UnixMicro())
	}
	slices.Sort(at)
	worst, worstAt, fullest := 0.0, int64(0), 0
	for i := range at {
		for j := i; j < len(at); j++ {
			length := float64(at[j]-at[i]) / 1e6
			if over := float64(j-i+1) - rate*length - burst; over > worst {
				worst, worstAt = over, at[i]
			}
			if length <= 1 {
				fullest = max(fullest, j-i+1)
			}
		}
	}
	// Times are whole microseconds.
	if worst > 1e-4*rate {
		t.Errorf("over the limit by %.3f visitors in an interval that begins at %d; the fullest second holds %d, rate %v, burst %v", worst, worstAt, fullest, rate, burst)
	}
	if float64(fullest) > rate+burst {
		t.Errorf("a second holds %d admissions, rate %v + burst %v", fullest, rate, burst)
	}
}

// checkOrder checks that no visitor was admitted before one with a smaller order.
func checkOrder(t testing.TB, places []place) {
	t.Helper()
	line := make([]place, 0, len(places))
	for _, p := range places {
		if p.ord != 0 {
			line = append(line, p)
		}
	}
	slices.SortFunc(line, func(a, b place) int { return cmp.Or(cmp.Compare(a.ord, b.ord), a.at.Compare(b.at)) })
	faults := 0
	for i := 1; i < len(line); i++ {
		if line[i].ord > line[i-1].ord && line[i].at.Before(line[i-1].at) {
			if faults++; faults <= 5 {
				t.Errorf("order %d was admitted at %s, order %d already at %s", line[i-1].ord, line[i-1].admittedAt, line[i].ord, line[i].admittedAt)
			}
		}
	}
	if faults > 5 {
		t.Errorf("… and %d more pairs out of order", faults-5)
	}
}

// repeats checks that claims may be repeated: the same session and the same time, from status and claim alike.
func repeats(t testing.TB, places []place) {
	t.Helper()
	for _, p := range places {
		if p.token == "" {
			continue // admitted immediately, without a ticket
		}
		token := headers{"X-Waiting-Room-Token": p.token}
		for _, a := range []answer{
			p.client.get(p.gateway, "/.waiting-room/sale/status", token),
			p.client.ask(p.gateway, http.MethodPost, "/.waiting-room/sale/claim", "", token),
		} {
			s := a.want(http.StatusOK).status()
			if s.State != "active" || s.AdmittedAt != p.admittedAt {
				t.Errorf("%s again: state %s, admitted_at %s; want active, %s", a.asked, s.State, s.AdmittedAt, p.admittedAt)
				continue
			}
			if _, pass := decode(t, s.Pass); pass.Sid != p.sid {
				t.Errorf("%s again: session %s, before %s", a.asked, pass.Sid, p.sid)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// room returns the flow mapping of room "sale", which has all paths and these further settings.
func room(parts ...string) string {
	return "{id: sale, " + strings.Join(parts, ", ") + "}"
}

func admission(rate, burst int) string {
	return fmt.Sprintf("admission: {rate: %d, burst: %d}", rate, burst)
}
