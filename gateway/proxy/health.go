package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/anteroom/anteroom/gateway/http1"
)

// Active health: checks in a row that take a server out, and bring it back.
const (
	checksDown = 2
	checksUp   = 2
)

// watch checks a server until Close, first at once, then about every interval.
func (o *Origin) watch(s *server) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-o.background.ctx.Done():
			return
		case <-timer.C:
		}
		err := o.check(s)
		if o.background.ctx.Err() != nil {
			return
		}
		if !localFault(err) {
			o.checked(s, err, time.Now())
		}
		d := o.cfg.Health.Interval
		timer.Reset(d - d/10 + rand.N(d/5)) //nolint:gosec // spreads load; nothing secret depends on it
	}
}

// checked records a check. Two equal ones take a server out or bring it back, also one that could not be connected
// to. A server that is out for its responses has to recover by its responses.
func (o *Origin) checked(s *server, err error, now time.Time) {
	o.mu.Lock()
	var c *Change
	if err == nil {
		s.checks = max(s.checks, 0) + 1
	} else {
		s.checks = min(s.checks, 0) - 1
	}
	switch {
	case !s.down && s.checks <= -checksDown:
		was := s.up()
		s.hurt, s.down, s.risen, s.reason = true, true, time.Time{}, "health check: "+err.Error()
		if was {
			c = &Change{Server: s.url, Reason: s.reason}
		}
	case (s.down || s.refused) && s.checks >= checksUp:
		s.down = false
		if s.refused || !s.trial {
			c = s.bringBack(now)
		}
	}
	o.mu.Unlock()
	report(o.onChange, c)
}

// check sends one check, on a connection of its own.
func (o *Origin) check(s *server) error {
	limit := o.cfg.Health.Interval
	if t := o.cfg.FirstByteTimeout; t > 0 {
		limit = min(limit, o.cfg.ConnectTimeout+t)
	}
	by := time.Now().Add(limit)
	oc, _, err := s.dial(o.background.ctx, o.cfg.ConnectTimeout, by)
	if err != nil {
		return err
	}
	defer oc.Close()
	defer oc.in.Release()
	defer context.AfterFunc(o.background.ctx, func() { oc.Close() })()
	if err := oc.link.SetWriteDeadline(by); err != nil {
		return err
	}
	if _, err := oc.link.Write([]byte("GET " + o.cfg.Health.Path + " HTTP/1.1\r\nHost: " + s.authority +
		"\r\nUser-Agent: anteroom-health\r\nAccept: */*\r\nConnection: close\r\n\r\n")); err != nil {
		return err
	}
	for {
		var a http1.ResponseHeader
		n := 0
		if oc.in.Buffered() > 0 {
			if n, err = a.Scan(oc.in.Pending()); err != nil {
				return err
			}
		}
		switch {
		case n == 0:
			if time.Now().After(by) {
				return errTimeout
			}
			oc.wait.slice = max(time.Until(by), time.Millisecond)
			oc.wait.patience = oc.wait.slice
			if err := oc.in.Fill(); err != nil {
				return http1.NoEOF(err)
			}
		case a.Status < 200:
			oc.in.Skip(n)
		case a.Status < 400:
			return nil
		default:
			return fmt.Errorf("status %d", a.Status)
		}
	}
}

// responseTime returns how long a server has for its response if nothing else took time; 0: no limit.
func (c *Config) responseTime() time.Duration {
	d := c.FirstByteTimeout
	if t := c.Timeout; t > 0 && (t < d || d == 0) {
		d = t
	}
	return d
}

// verdict returns what the exchange shows of its server, and why.
func (x *exchange) verdict() (verdict, string) {
	switch x.outcome.Kind {
	case "":
		switch x.a.Status {
		case 502, 503, 504:
			return faulty, statusReason[x.a.Status-502]
		}
		return sound, ""
	case KindTimeout:
		// A stream may be silent for longer, and a request that waited in the queue leaves little time.
		if x.outcome.Sent || time.Since(x.sentAt) < x.o.cfg.responseTime()/2 {
			return unknown, ""
		}
		return faulty, "no response in time"
	case KindReset:
		if x.upgraded {
			return unknown, ""
		}
		return faulty, "the connection ended before a response"
	case KindBadResponse:
		return faulty, "a response that is not valid HTTP"
	case KindBodyCut:
		if x.upgraded {
			return unknown, ""
		}
		return faulty, "the connection ended inside a response"
	}
	return unknown, ""
}

var statusReason = [...]string{"status 502", "status 503", "status 504"}
