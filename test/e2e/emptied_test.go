package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/internal/redistest"
)

// multitude is a number of visitors on few connections, who use both gateways in turn.
type multitude struct {
	t       *testing.T
	clients []*fasthttp.HostClient
	all     []guest
}

type guest struct {
	token, epoch string
	jti, sid     string
	ord          int64
	at           time.Time
	due          time.Time // the latest time of the advised poll
	late         bool      // a poll was later than due
}

func newMultitude(t *testing.T, n int, gs ...*gateway) *multitude {
	m := &multitude{t: t, all: make([]guest, n)}
	for _, g := range gs {
		c := &fasthttp.HostClient{Addr: g.addr, MaxConns: 16, MaxConnWaitTimeout: patience, ReadTimeout: patience, WriteTimeout: patience}
		t.Cleanup(c.CloseIdleConnections)
		m.clients = append(m.clients, c)
	}
	return m
}

// each calls a function for every visitor from first on, 32 at a time, in no order.
func (m *multitude) each(first int, do func(i int, v *guest) error) {
	m.t.Helper()
	var next atomic.Int64
	next.Store(int64(first))
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for !m.t.Failed() {
				i := int(next.Add(1)) - 1
				if i >= len(m.all) {
					return
				}
				if err := do(i, &m.all[i]); err != nil {
					m.t.Errorf("visitor %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	if m.t.Failed() {
		m.t.FailNow()
	}
}

// ask sends a request to each gateway in turn, until one that reaches the store responds.
func (m *multitude) ask(turn int, method, path, token string) (s status, err error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	for try, begun := 0, time.Now(); time.Since(begun) < patience; try++ {
		c := m.clients[(turn+try)%len(m.clients)]
		req.Reset()
		req.SetRequestURI("http://" + c.Addr + "/.waiting-room/sale/" + path)
		req.Header.SetMethod(method)
		if token != "" {
			req.Header.Set("X-Waiting-Room-Token", token)
		}
		if err = c.DoTimeout(req, resp, patience); err != nil {
			return s, err
		}
		if code := resp.StatusCode(); code != http.StatusServiceUnavailable {
			if code != http.StatusOK && code != http.StatusCreated {
				return s, fmt.Errorf("%d %s", code, resp.Body())
			}
			return s, json.Unmarshal(resp.Body(), &s)
		}
		<-time.After(100 * time.Millisecond)
	}
	return s, errors.New("the store is not back")
}

// take records the place that a response reports.
func (m *multitude) take(v *guest, s status) error {
	if s.Token != "" {
		_, w := decode(m.t, s.Token)
		if v.jti != "" && (w.Jti != v.jti || w.Ord != v.ord) {
			return fmt.Errorf("ticket %s of order %d became %s of order %d", v.jti, v.ord, w.Jti, w.Ord)
		}
		v.token, v.jti, v.ord = s.Token, w.Jti, w.Ord
		v.epoch, _ = w.Ep.(string)
	}
	if s.Pass == "" {
		return nil
	}
	_, p := decode(m.t, s.Pass)
	at, err := time.Parse(time.RFC3339Nano, s.AdmittedAt)
	if v.sid != "" && (v.sid != p.Sid || !v.at.Equal(at)) {
		return fmt.Errorf("session %s of %s, before %s of %s", p.Sid, at, v.sid, v.at)
	}
	v.sid, v.at = p.Sid, at
	return err
}

// A store loses ten thousand waiting tickets. After one poll each, in any order and at any gateway, all have their former place, the
// room has the operators' changes, and no visitor is admitted twice.
func TestEmptiedStore_KeepsTenThousandTickets(t *testing.T) {
	t.Parallel()
	const atOnce, waiters = 200, 10_000
	site := newOrigin(t, nil)
	store := redistest.Server(t)
	s := setup{origin: site.URL, more: "log: {access: false}", rooms: []string{room(admission(atOnce, atOnce), "session: {ttl: 1m}")}}.withRedis(store.URL())
	a, b := start(t, s), start(t, s)
	o := adminOf(t, a)
	m := newMultitude(t, atOnce, a, b)
	join := func(i int, v *guest) error {
		s, err := m.ask(i, http.MethodPost, "tickets", "")
		if err != nil {
			return err
		}
		return m.take(v, s)
	}
	m.each(0, join)
	o.patch("rooms/sale", `{"paused":true,"rate":2000,"burst":2000}`).want(http.StatusOK)
	before := len(m.all)
	m.all = append(m.all, make([]guest, waiters)...)
	m.each(before, join)
	poll := func(i int, v *guest) error {
		v.late = v.late || !v.due.IsZero() && time.Now().After(v.due)
		s, err := m.ask(i, http.MethodGet, "status", v.token)
		if err != nil {
			return err
		}
		v.due = time.Time{}
		if s.RefreshAfter != nil {
			v.due = time.Now().Add(time.Duration(*s.RefreshAfter*float64(time.Second)) + 10*time.Second) // as late as docs/waiting.md allows
		}
		switch s.State {
		case "waiting", "admitted", "active":
			return m.take(v, s)
		}
		return fmt.Errorf("lost the place: %v", s)
	}
	m.each(before, poll)
	// On a busy machine a round of ten thousand polls takes longer than the hold of one poll.
	inLine := func(r roomInfo) int { return r.Waiting + r.Parked }
	o.rooms("sale", func(r roomInfo) bool { return inLine(r) >= waiters })

	old := m.all[before].epoch
	began := time.Now()
	if err := store.Client().FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	m.each(before, poll)
	var behind atomic.Int64
	for {
		behind.Store(0)
		m.each(before, func(i int, v *guest) error {
			if v.epoch != old && v.epoch != "" {
				return nil
			}
			behind.Add(1)
			return poll(i, v)
		})
		if behind.Load() == 0 {
			break
		}
	}
	t.Logf("%d are back %s after the store was emptied, a poll each from 32 connections", waiters, time.Since(began).Round(time.Millisecond))
	o.rooms("sale", func(r roomInfo) bool { return inLine(r) >= waiters && r.Paused && r.Policy["rate"] == 2000.0 })
	if r := o.room("sale"); inLine(r)+r.Admitted < waiters || inLine(r)+r.Admitted > waiters+atOnce {
		t.Errorf("%d wait or are admitted", inLine(r)+r.Admitted)
	}

	o.post("rooms/sale/resume", "").want(http.StatusOK)
	for in := 0; in < waiters; {
		in = 0
		m.each(before, func(i int, v *guest) error {
			if v.sid != "" {
				return nil
			}
			return poll(i, v)
		})
		for _, v := range m.all[before:] {
			if v.sid != "" {
				in++
			}
		}
	}
	// Later polls return the same session.
	for i := before; i < len(m.all); i += 500 {
		if err := poll(i, &m.all[i]); err != nil {
			t.Error(err)
		}
	}
	line := slices.Clone(m.all[before:])
	slices.SortFunc(line, func(a, b guest) int { return cmp.Compare(a.ord, b.ord) })
	sids, overtaken, late := map[string]bool{}, 0, 0
	for i, v := range line {
		if sids[v.sid] {
			t.Errorf("two visitors share the session %s", v.sid)
		}
		sids[v.sid] = true
		if v.late { // on a busy machine polls are late, and absent visitors are passed over
			late++
		}
		if i > 0 && v.at.Before(line[i-1].at) && v.ord > line[i-1].ord && !line[i-1].late {
			overtaken++
		}
	}
	t.Logf("%d polled later than advised", late)
	if overtaken > 0 {
		t.Errorf("%d of %d were let in before their neighbour ahead", overtaken, waiters)
	}
	// At most two seconds of the rate at one moment: the refilled bucket of 2000, and the refill during the admissions.
	slices.SortFunc(line, func(a, b guest) int { return a.at.Compare(b.at) })
	for i, j := 0, 0; j < len(line); j++ {
		for line[j].at.Sub(line[i].at) > time.Second {
			i++
		}
		if n := j - i + 1; n > 4000 {
			t.Fatalf("%d within a second, rate 2000 and burst 2000", n)
		}
	}
}
