package visitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/internal/sleep"
)

// Pool holds the credentials of waiting and of admitted visitors.
type Pool struct {
	Waiting, Admitted []Credentials
}

// ErrNoPass is returned if passes are wanted and the room admits nobody.
var ErrNoPass = errors.New("no visitor was admitted: raise the room's rate or burst, or allow more time to prepare")

// ErrNoQueue is returned if waiting tokens are wanted and the room admits every visitor.
var ErrNoQueue = errors.New("no visitor has to wait: lower the room's rate and burst")

// Gather joins until it has so many waiting tokens, or, if none are wanted, so many passes. The visitors that are admitted
// immediately have the passes; if there are none, the first waiting visitors poll until one is admitted. It returns tokens
// that the store has confirmed, so that a later poll is not an enrolment.
func Gather(ctx context.Context, o Options, tokens, passes int) (*Pool, error) {
	c, err := New(o)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	p := &Pool{}
	var mu sync.Mutex
	left := tokens + passes + 100_000 // a room may admit everybody, or nobody
	group, gctx := errgroup.WithContext(ctx)
	for range o.Connections {
		group.Go(func() error {
			for gctx.Err() == nil {
				mu.Lock()
				enough := len(p.Waiting) >= tokens && (tokens > 0 || len(p.Admitted) >= passes)
				left--
				mu.Unlock()
				if enough || left < 0 {
					break
				}
				cr, err := join(gctx, c)
				if err != nil {
					return err
				}
				mu.Lock()
				if cr.Pass == "" && len(p.Waiting) < tokens {
					p.Waiting = append(p.Waiting, cr)
				} else if cr.Pass != "" && len(p.Admitted) < passes {
					p.Admitted = append(p.Admitted, cr)
				}
				mu.Unlock()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("joining: %w", err)
	}
	if passes > 0 && len(p.Admitted) == 0 {
		if err := p.awaitPass(ctx, c); err != nil {
			return nil, err
		}
	}
	if tokens > 0 && len(p.Waiting) == 0 {
		return nil, ErrNoQueue
	}
	return p, ctx.Err()
}

// join returns the credentials of a confirmed place. It tries five times, since a busy gateway may refuse a few of many
// requests.
func join(ctx context.Context, c *Client) (cr Credentials, err error) {
	for range 5 {
		cr = Credentials{}
		var a Response
		a, err = c.Join(&cr)
		if err == nil && cr.Token == "" && cr.Pass == "" {
			err = fmt.Errorf("join: %d %s", a.HTTP, a.Status.Code)
		}
		for range 5 { // a gateway without its store confirms no place: such a token is returned as it is
			if err != nil || cr.Pass != "" || ctx.Err() != nil {
				break
			}
			var claims Claims
			if claims, err = Decode(cr.Token); err != nil || claims.Confirmed() {
				break
			}
			if a, err = c.Status(&cr); err == nil && a.HTTP != 200 {
				err = fmt.Errorf("status: %d %s", a.HTTP, a.Status.Code)
			}
		}
		if err == nil || ctx.Err() != nil {
			return cr, err
		}
	}
	return cr, err
}

// awaitPass polls the first waiting visitors in turn until one of them is admitted.
func (p *Pool) awaitPass(ctx context.Context, c *Client) error {
	front := min(len(p.Waiting), 20)
	for k := 0; front > 0; k++ {
		i := k % front
		if _, err := c.Status(&p.Waiting[i]); err != nil {
			return err
		}
		if p.Waiting[i].Pass != "" {
			p.Admitted = append(p.Admitted, p.Waiting[i])
			p.Waiting = slices.Delete(p.Waiting, i, i+1)
			return nil
		}
		if !sleep.For(ctx, 50*time.Millisecond) {
			break
		}
	}
	return ErrNoPass
}
