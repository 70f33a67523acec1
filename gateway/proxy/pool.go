package proxy

import (
	"container/list"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// Connections are reused for keepIdle, and none lives longer than connLife, so that changed addresses and rebalanced
// origins take effect.
const (
	keepIdle   = 15 * time.Second
	connLife   = 5 * time.Minute
	maxWaiting = 4096                   // requests that may wait for a slot at once
	leftCheck  = 500 * time.Millisecond // how often a waiting request checks whether its client is still connected
)

var (
	errQueueFull = errors.New("proxy: max_conns connections are in use and queue_timeout has passed")
	errQueueLong = errors.New("proxy: max_conns connections are in use and the queue is full")
)

// waiter is a request in the queue for a slot.
type waiter struct {
	granted chan struct{}
	element *list.Element // in slots.waiting; nil once it has left the queue
}

// slots are the MaxConns connections of an origin that may be in use at once, with the queue for them. Origin.mu guards
// them, and their methods are called with it held.
type slots struct {
	max        int // 0: no limit
	maxWaiting int
	inUse      int       // connections in use or being made
	waiting    list.List // of *waiter, first come first served
	claims     claims
}

// enter takes one of MaxConns slots, waiting for at most wait, and reports whether it waited. If gone returns an
// error, the client has left, and the place in the queue or the slot is freed. The claim counts from the start, in
// the queue too, unless enter returns an error.
func (o *Origin) enter(c *claim, wait time.Duration, gone func() error) (bool, error) {
	o.mu.Lock()
	if err := o.slots.hold(c); err != nil {
		o.mu.Unlock()
		return false, err
	}
	if o.slots.max <= 0 || o.slots.inUse < o.slots.max {
		o.slots.inUse++
		o.mu.Unlock()
		return false, nil
	}
	if wait <= 0 || o.slots.waiting.Len() >= o.slots.maxWaiting {
		defer o.mu.Unlock()
		o.slots.release(c)
		if wait <= 0 {
			return false, o.slots.markCrowded(errQueueFull)
		}
		return false, o.slots.markCrowded(errQueueLong)
	}
	w := &waiter{granted: make(chan struct{}, 1)}
	w.element = o.slots.waiting.PushBack(w)
	o.mu.Unlock()
	err := w.wait(wait, gone)
	if err == nil {
		if err = gone(); err != nil {
			o.leave(c)
		}
		return true, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if w.element != nil {
		o.slots.waiting.Remove(w.element)
		o.slots.release(c)
		return true, o.slots.markCrowded(err)
	}
	<-w.granted // the slot was granted as the time ran out
	if err != errQueueFull {
		o.slots.release(c)
		o.slots.leave()
		return true, err
	}
	return true, nil
}

// crowdedError is an error of the queue that a single client may have caused.
type crowdedError struct{ error }

func (e crowdedError) Unwrap() error { return e.error }

// markCrowded marks an error of the queue if one client holds more than a quarter of the connections: the origin may
// then not be overloaded.
func (s *slots) markCrowded(err error) error {
	if s.claims.crowds > 0 && (err == errQueueFull || err == errQueueLong) {
		return crowdedError{err}
	}
	return err
}

func (w *waiter) wait(d time.Duration, gone func() error) error {
	timer := time.NewTimer(min(d, leftCheck))
	defer timer.Stop()
	for {
		select {
		case <-w.granted:
			return nil
		case <-timer.C:
		}
		if d -= leftCheck; d <= 0 {
			return errQueueFull
		}
		if err := gone(); err != nil {
			return err
		}
		timer.Reset(min(d, leftCheck))
	}
}

// leave passes the slot to the request that has waited longest, or frees it.
func (s *slots) leave() {
	if first := s.waiting.Front(); first != nil {
		w := s.waiting.Remove(first).(*waiter)
		w.element = nil
		w.granted <- struct{}{}
		return
	}
	s.inUse--
}

func (o *Origin) leave(c *claim) {
	o.mu.Lock()
	o.slots.release(c)
	o.slots.leave()
	o.mu.Unlock()
}

// pick chooses a server that was not tried yet, and counts the connection on it. It returns an idle connection of
// that server unless there is none, and whether the server is out: then all servers are. after is a server whose kept
// connection has just ended: it may be failing, so another server of its rank is preferred and no idle connection is used.
func (o *Origin) pick(now time.Time, tried uint64, after *server) (*server, *originConn, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var best *server
	rank := rankIn
	if len(o.servers.all) > 1 {
		if best, rank = o.servers.choose(now, tried, after); best == nil {
			return nil, nil, false
		}
	} else {
		if tried != 0 {
			return nil, nil, false
		}
		best = o.servers.all[0]
		if best.down {
			rank = rankOut
		}
	}
	best.inUse++
	n := len(best.idle)
	if after != nil || n == 0 {
		return best, nil, rank != rankIn
	}
	c := best.idle[n-1]
	if now.Sub(c.idleSince) >= keepIdle {
		return best, nil, rank != rankIn // so are the older ones; reap closes them
	}
	best.idle[n-1] = nil
	best.idle = best.idle[:n-1]
	return best, c, rank != rankIn
}

// drop uncounts a connection, or an attempt to connect, from its server.
func (o *Origin) drop(s *server) {
	o.mu.Lock()
	s.inUse--
	o.mu.Unlock()
}

// done ends an exchange: it passes the slot on, records the verdict on the server, and keeps the connection if it may
// be reused.
func (o *Origin) done(held *claim, s *server, c *originConn, reuse bool, v verdict, why string, now time.Time) {
	o.mu.Lock()
	o.slots.release(held)
	s.inUse--
	var change *Change
	if v == faulty || s.hurt {
		change = o.servers.note(s, v, why, now)
	}
	if reuse && !o.closed && now.Before(c.until) {
		c.idleSince = now
		s.idle = append(s.idle, c)
		if o.reaper == nil {
			o.reaper = time.AfterFunc(keepIdle, o.reap)
		}
		c = nil
	}
	o.slots.leave()
	o.mu.Unlock()
	if c != nil {
		c.Close()
	}
	report(o.onChange, change)
}

// lifeEnd returns when a connection that is made now stops being reused. Connections that were made together end at
// different times.
func lifeEnd(now time.Time) time.Time { return now.Add(connLife - rand.N(connLife/10)) } //nolint:gosec // as in health.go

// reap closes connections that have been idle too long, and schedules itself while any is idle.
func (o *Origin) reap() {
	now := time.Now()
	var old []*originConn
	left := false
	o.mu.Lock()
	for _, s := range o.servers.all {
		n := 0
		for n < len(s.idle) && now.Sub(s.idle[n].idleSince) >= keepIdle {
			n++
		}
		old = append(old, s.idle[:n]...)
		s.idle = slices.Delete(s.idle, 0, n)
		left = left || len(s.idle) > 0
	}
	if o.reaper = nil; left && !o.closed {
		o.reaper = time.AfterFunc(keepIdle/2, o.reap)
	}
	o.mu.Unlock()
	for _, c := range old {
		c.Close()
	}
}
