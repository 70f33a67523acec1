package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/visitor"
)

// blend is the shares of the requests, in parts that need not sum up to a hundred.
type blend struct{ Polls, Proxied, Joins int }

// kind deals the k-th request of a cycle so that the shares are spread evenly rather than in blocks: the one that is
// most behind its share goes next.
func (b blend) cycle() ([]byte, error) {
	sum := b.Polls + b.Proxied + b.Joins
	if b.Polls < 0 || b.Proxied < 0 || b.Joins < 0 || sum == 0 || sum > 10_000 {
		return nil, errors.New("--polls, --proxied and --joins: want shares that sum up to 1–10000")
	}
	shares := []struct {
		kind byte
		n    int
	}{{'p', b.Polls}, {'x', b.Proxied}, {'j', b.Joins}}
	done := make([]int, len(shares))
	cycle := make([]byte, 0, sum)
	for k := 1; k <= sum; k++ {
		best, behind := 0, -sum*sum
		for i, s := range shares {
			if d := s.n*k - done[i]*sum; d > behind {
				best, behind = i, d
			}
		}
		done[best]++
		cycle = append(cycle, shares[best].kind)
	}
	return cycle, nil
}

// mixReport is what an open-loop run came to.
type mixReport struct {
	Asked    float64   `json:"asked_per_second"` // 0: as fast as answered
	Achieved float64   `json:"achieved_per_second"`
	Seconds  float64   `json:"seconds"`
	All      quantiles `json:"all"`
	Polls    quantiles `json:"polls"`
	Proxied  quantiles `json:"proxied"`
	Joins    quantiles `json:"joins"`
	Errors   int64     `json:"errors"`
	First    string    `json:"first_error,omitempty"`
	Tokens   int       `json:"tokens"`
	Passes   int       `json:"passes"`
}

// runMix sends the blend through the loop with the gathered credentials.
func runMix(ctx context.Context, c *visitor.Client, loop openLoop, b blend, p *visitor.Pool, path string) (mixReport, error) {
	cycle, err := b.cycle()
	if err != nil {
		return mixReport{}, err
	}
	loop.Workers = max(loop.Workers, 1)
	all, polls, proxied, joins := newLatency(), newLatency(), newLatency(), newLatency()
	var bad atomic.Int64
	var first atomic.Pointer[string]
	turn := make([]struct{ poll, visit int }, loop.Workers)
	elapsed := loop.run(ctx, func(w, k int, due time.Time) {
		// Worker w takes every Workers-th request of the cycle, so that the blend holds at every moment.
		var a visitor.Answer
		var err error
		kind, into := cycle[(k*loop.Workers+w)%len(cycle)], polls
		switch kind {
		case 'p':
			i := share(w, loop.Workers, turn[w].poll, len(p.Waiting))
			turn[w].poll++
			a, err = c.Status(&p.Waiting[i])
		case 'x':
			into = proxied
			i := share(w, loop.Workers, turn[w].visit, len(p.LetIn))
			turn[w].visit++
			cr := visitor.Credentials{Pass: p.LetIn[i].Pass} // a copy: passes may be fewer than workers
			a, err = c.Visit(&cr, path)
		default:
			into = joins
			a, err = c.Join(&visitor.Credentials{})
		}
		took := time.Since(due)
		all.record(took)
		into.record(took)
		if err == nil && (a.HTTP >= 400 || kind == 'x' && a.Room == "waiting") {
			err = fmt.Errorf("%c: status %d, room %q", kind, a.HTTP, a.Room)
		}
		if err != nil {
			bad.Add(1)
			s := err.Error()
			first.CompareAndSwap(nil, &s)
		}
	})
	r := mixReport{
		Asked: loop.Rate, Seconds: elapsed.Seconds(), All: all.quantiles(), Polls: polls.quantiles(),
		Proxied: proxied.quantiles(), Joins: joins.quantiles(), Errors: bad.Load(), Tokens: len(p.Waiting), Passes: len(p.LetIn),
	}
	r.Achieved = float64(r.All.Count) / r.Seconds
	if s := first.Load(); s != nil {
		r.First = *s
	}
	return r, nil
}

// share walks the worker's own entries of a pool of n: w, w+workers, w+2·workers, …; where the pool is smaller than the
// number of workers, they share. Tokens are not shared, since a poll may renew them: see tokensFor.
func share(w, workers, k, n int) int {
	own := (n - w + workers - 1) / workers
	if own <= 0 {
		return w % n
	}
	return w + k%own*workers
}

// tokensFor raises the number of tokens so that no two workers share one.
func tokensFor(tokens, workers int) int { return max(tokens, workers) }

func (r mixReport) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r mixReport) text(out io.Writer) error {
	w := &strings.Builder{}
	asked := "as fast as answered"
	if r.Asked > 0 {
		asked = fmt.Sprintf("%.0f/s asked for", r.Asked)
	}
	fmt.Fprintf(w, "rate       %.0f/s (%s) over %.1f s, with %d tokens and %d passes\n", r.Achieved, asked, r.Seconds, r.Tokens, r.Passes)
	r.All.line(w, "all")
	r.Polls.line(w, "polls")
	r.Proxied.line(w, "proxied")
	r.Joins.line(w, "joins")
	fmt.Fprintf(w, "errors     %d", r.Errors)
	if r.First != "" {
		fmt.Fprintf(w, " (the first: %s)", r.First)
	}
	w.WriteByte('\n')
	_, err := io.WriteString(out, w.String())
	return err
}
