package proxy

import (
	"slices"
	"sync"
	"time"
)

// waiter stands in the queue for a connection slot.
type waiter struct{ granted chan struct{} }

var waiterPool = sync.Pool{New: func() any { return &waiter{granted: make(chan struct{}, 1)} }}

// enter takes one of MaxConns slots, waiting its turn for at most wait; it tells whether it waited.
func (o *Origin) enter(wait time.Duration) (bool, error) {
	o.mu.Lock()
	if o.cfg.MaxConns <= 0 || o.inUse < o.cfg.MaxConns {
		o.inUse++
		o.mu.Unlock()
		return false, nil
	}
	if wait <= 0 {
		o.mu.Unlock()
		return false, errQueueFull
	}
	w := waiterPool.Get().(*waiter)
	o.waiting = append(o.waiting, w)
	o.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	defer waiterPool.Put(w)
	select {
	case <-w.granted:
		return true, nil
	case <-timer.C:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.waiting, w); i >= 0 {
		o.waiting = slices.Delete(o.waiting, i, i+1)
		return true, errQueueFull
	}
	<-w.granted // the slot came as the time ran out
	return true, nil
}

// leave gives the slot to the one who has waited longest, or back. Call it with mu held.
func (o *Origin) leaveLocked() {
	if len(o.waiting) > 0 {
		w := o.waiting[0]
		o.waiting = slices.Delete(o.waiting, 0, 1)
		w.granted <- struct{}{}
		return
	}
	o.inUse--
}

func (o *Origin) leave() {
	o.mu.Lock()
	o.leaveLocked()
	o.mu.Unlock()
}

// pick chooses the server with the fewest connections in use, passing over those that failed lately
// and those already tried; the slot is counted on it. It returns an idle connection of that server,
// unless fresh is asked for or there is none.
func (o *Origin) pick(now time.Time, tried uint64, fresh bool) (*server, *originConn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var best *server
	if len(o.servers) == 1 {
		if tried != 0 {
			return nil, nil
		}
		best = o.servers[0]
	} else {
		best = o.leastLoaded(now, tried)
		if best == nil {
			return nil, nil
		}
	}
	best.inUse++
	n := len(best.idle)
	if fresh || n == 0 {
		return best, nil
	}
	c := best.idle[n-1]
	if now.Sub(c.idleSince) >= keepIdle {
		return best, nil // so are the others, which are older: the reaper has them
	}
	best.idle[n-1] = nil
	best.idle = best.idle[:n-1]
	return best, c
}

func (o *Origin) leastLoaded(now time.Time, tried uint64) *server {
	var best *server
	bestFailed := false
	o.next++
	for i := range o.servers {
		k := (o.next + i) % len(o.servers)
		s := o.servers[k]
		if tried&(1<<(k&63)) != 0 {
			continue
		}
		failed := now.Before(s.failed)
		switch {
		case best == nil, bestFailed && !failed:
		case failed != bestFailed:
			continue
		case failed:
			if !s.failed.Before(best.failed) {
				continue
			}
		case s.inUse >= best.inUse:
			continue
		}
		best, bestFailed = s, failed
	}
	return best
}

func (o *Origin) triedBit(s *server) uint64 {
	return 1 << (slices.Index(o.servers, s) & 63)
}

// drop takes a connection, or the attempt at one, off its server's count.
func (o *Origin) drop(s *server) {
	o.mu.Lock()
	s.inUse--
	o.mu.Unlock()
}

// done ends an exchange: it gives the slot on and keeps the connection if it may be used again.
func (o *Origin) done(s *server, c *originConn, reuse bool, now time.Time) {
	o.mu.Lock()
	s.inUse--
	if reuse && !o.closed && now.Sub(c.born) < connLife {
		c.idleSince = now
		s.idle = append(s.idle, c)
		if o.reaper == nil {
			o.reaper = time.AfterFunc(keepIdle, o.reap)
		}
		c = nil
	}
	o.leaveLocked()
	o.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// reap closes what has been idle too long, and comes again while anything is idle.
func (o *Origin) reap() {
	now := time.Now()
	var old []*originConn
	left := false
	o.mu.Lock()
	for _, s := range o.servers {
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

// failed notes that a server could not be connected to: it is passed over for a while, longer each
// time. worked ends that.
func (o *Origin) failed(s *server, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := failedMax
	if s.fails < 5 {
		d = failedBase << s.fails
	}
	s.fails++
	s.failed = now.Add(d)
}

func (o *Origin) worked(s *server) {
	o.mu.Lock()
	s.fails, s.failed = 0, time.Time{}
	o.mu.Unlock()
}
