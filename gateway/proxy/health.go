package proxy

import (
	"context"
	"fmt"
	"github.com/anteroom/anteroom/gateway/http1"
	"math/rand/v2"
	"time"
)

// Active health: so many checks in a row take a server out, and bring it back.
const (
	checksDown = 2
	checksUp   = 2
)

// watch asks a server for its health until Close, the first time at once, then about every interval.
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
		if !ownFault(err) {
			o.checked(s, err, time.Now())
		}
		d := o.cfg.Health.Interval
		timer.Reset(d - d/10 + rand.N(d/5)) //nolint:gosec // spreads load; nothing is kept safe by it
	}
}

// checked notes what a check found. Two that agree take a server out or bring it back; they also bring back one that
// could not be connected to. One whose answers were bad has to show otherwise by its answers.
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
	o.report(c)
}

// check asks once, on a connection of its own.
func (o *Origin) check(s *server) error {
	limit := o.cfg.Health.Interval
	if t := o.cfg.FirstByteTimeout; t > 0 {
		limit = min(limit, o.cfg.ConnectTimeout+t)
	}
	by := time.Now().Add(limit)
	oc, _, err := o.dial(o.background.ctx, s, by)
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

// verdict is what the exchange showed of its server, and in which words.
func (x *exchange) verdict() (verdict, string) {
	switch x.outcome.Kind {
	case "":
		switch x.a.Status {
		case 502, 503, 504:
			return faulty, statusReason[x.a.Status-502]
		}
		return sound, ""
	case KindTimeout:
		// A stream may be silent for longer than we wait, and a request that waited for its turn leaves little time.
		if x.outcome.Sent || time.Since(x.sentAt) < x.o.cfg.responseTime()/2 {
			return unknown, ""
		}
		return faulty, "no answer in time"
	case KindReset:
		if x.upgraded {
			return unknown, ""
		}
		return faulty, "the connection ended before an answer"
	case KindBadResponse:
		return faulty, "an answer that HTTP does not allow"
	case KindBodyCut:
		if x.upgraded {
			return unknown, ""
		}
		return faulty, "the connection ended inside an answer"
	}
	return unknown, ""
}

var statusReason = [...]string{"status 502", "status 503", "status 504"}
