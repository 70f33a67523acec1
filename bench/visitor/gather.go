package visitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Pool is the credentials of visitors who wait and of visitors who were let in.
type Pool struct {
	Waiting, LetIn []Credentials
}

// ErrNoPass says that the room admitted nobody while passes were wanted.
var ErrNoPass = errors.New("no visitor was let in")

// ErrNoLine says that the room let everybody in while waiting tokens were wanted.
var ErrNoLine = errors.New("nobody has to wait")

// Gather joins until it holds the wanted number of waiting tokens (where none are wanted: of passes). Passes come from
// those who are let in at once; if nobody was, the first of the waiting are polled until one is. Waiting tokens are
// polled until the store has confirmed them, so that what is measured later is a poll and not an enrolment.
func Gather(ctx context.Context, c *Client, workers, tokens, passes int) (*Pool, error) {
	p := &Pool{}
	var mu sync.Mutex
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if tokens == 0 {
			return len(p.LetIn) >= passes
		}
		return len(p.Waiting) >= tokens
	}
	limit := int64(tokens + passes + 100_000) // a room that admits everybody yields no waiting token, and the reverse
	var joined atomic.Int64
	group, gctx := errgroup.WithContext(ctx)
	for range workers {
		group.Go(func() error {
			for gctx.Err() == nil && !enough() && joined.Add(1) <= limit {
				cr, err := join(gctx, c)
				if err != nil {
					return err
				}
				mu.Lock()
				switch {
				case cr.Pass == "" && len(p.Waiting) < tokens:
					p.Waiting = append(p.Waiting, cr)
				case cr.Pass != "" && len(p.LetIn) < passes:
					p.LetIn = append(p.LetIn, cr)
				}
				mu.Unlock()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("joining: %w", err)
	}
	if passes > 0 && len(p.LetIn) == 0 {
		if err := p.awaitPass(ctx, c); err != nil {
			return nil, err
		}
	}
	switch {
	case passes > 0 && len(p.LetIn) == 0:
		return nil, fmt.Errorf("%w: raise the room's rate or burst, or allow more time to prepare", ErrNoPass)
	case tokens > 0 && len(p.Waiting) == 0:
		return nil, fmt.Errorf("%w: lower the room's rate and burst, so that there is a line to poll in", ErrNoLine)
	}
	return p, ctx.Err()
}

// join takes a place and has it confirmed, over what a busy gateway may do to a few of many requests.
func join(ctx context.Context, c *Client) (cr Credentials, err error) {
	for range 5 {
		cr = Credentials{}
		var a Answer
		a, err = c.Join(&cr)
		switch {
		case err != nil:
		case cr.Token == "" && cr.Pass == "":
			err = fmt.Errorf("join: %d %s", a.HTTP, a.Status.Code)
		case cr.Pass == "":
			err = confirm(ctx, c, &cr)
		}
		if err == nil || ctx.Err() != nil {
			return cr, err
		}
	}
	return cr, err
}

// awaitPass polls the first of the waiting in turn, until one of them is let in or ctx ends.
func (p *Pool) awaitPass(ctx context.Context, c *Client) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	front := min(len(p.Waiting), 20)
	for k := 0; front > 0; k++ {
		i := k % front
		if _, err := c.Status(&p.Waiting[i]); err != nil {
			return err
		}
		if p.Waiting[i].Pass != "" {
			p.LetIn = append(p.LetIn, p.Waiting[i])
			p.Waiting = slices.Delete(p.Waiting, i, i+1)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// confirm polls until the token carries an epoch, a few times at most.
func confirm(ctx context.Context, c *Client, cr *Credentials) error {
	for range 5 {
		if claims, err := Decode(cr.Token); err != nil {
			return err
		} else if claims.Confirmed() || cr.Pass != "" || ctx.Err() != nil {
			return nil
		}
		if a, err := c.Status(cr); err != nil {
			return err
		} else if a.HTTP != 200 {
			return fmt.Errorf("status: %d %s", a.HTTP, a.Status.Code)
		}
	}
	return nil // a gateway without its store confirms nobody: poll all the same
}
