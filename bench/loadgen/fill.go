package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/visitor"
	"github.com/anteroom/anteroom/bench/wire"
)

// fillOptions says how a room is filled.
type fillOptions struct {
	Tickets, Threads int
	Sample           int
	Hold, Timeout    time.Duration
	TokensOut        string
}

func fillCommand(s *shared) *cobra.Command {
	var o fillOptions
	cmd := &cobra.Command{
		Use:   "fill",
		Short: "Join as many tickets as fast as possible and keep them polling",
		Long: `Every ticket joins and polls once, so that the store holds it, as fast as the gateway answers; then all of them poll as
often as it advises for as long as --hold says. Meanwhile it is checked that no place is lost, that no position grows that
was told when all were in (in the rush before, one gateway hears of another's arrivals a moment late), that those who are let in go in the order of their tickets, and, when all are in and at the end, that the positions of a sample
of tickets agree with their orders. It takes some 300 bytes a ticket. Exit status 1 if a promise was broken.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Tickets < 1 || o.Tickets > 1<<30 || o.Threads < 1 || o.Sample < 0 || o.Hold < 0 || o.Timeout <= 0 {
				return fmt.Errorf("--tickets %d, --threads %d, --sample %d, --hold %s, --timeout %s: want 1 to %d, at least 1, 0, 0s, more than 0s",
					o.Tickets, o.Threads, o.Sample, o.Hold, o.Timeout, 1<<30)
			}
			if s.workers < 1 {
				return fmt.Errorf("--connections %d: want at least 1", s.workers)
			}
			s.to.Connections = s.workers
			r, err := runFill(cmd.Context(), s.to, o)
			if err != nil {
				return err
			}
			return s.finish(cmd.OutOrStdout(), r, r.Kept)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Tickets, "tickets", 10_000, "how many join")
	f.IntVar(&o.Threads, "threads", 2, "that send; one does for some 50,000 requests a second")
	f.IntVar(&o.Sample, "sample", 1000, "tickets whose positions are compared with their orders")
	f.DurationVar(&o.Hold, "hold", 0, "keep them polling as advised for this long after all are in")
	f.DurationVar(&o.Timeout, "timeout", 10*time.Minute, "for all to join and to poll once")
	f.StringVar(&o.TokensOut, "tokens-out", "", "write the tokens to this file when all are in, one a line, for polls --tokens-in")
	return cmd
}

// fill is a fill that runs.
type fill struct {
	o       fillOptions
	to      visitor.Options
	host    string
	addrs   []*net.TCPAddr
	parts   []*filler
	tally   tally
	started time.Time
	result  wire.Result
	ranks   []ranking
}

func runFill(ctx context.Context, to visitor.Options, o fillOptions) (report fillReport, err error) {
	f := &fill{o: o, to: to}
	if f.host, f.addrs, err = plain(to.URLs); err != nil {
		return report, err
	}
	// Nearly all that is kept are tokens and tickets, without a pointer in them: to look at them often costs nothing,
	// and to let garbage pile up to their size would double what a fill needs.
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	used := ownCPU()
	f.tally.total = int64(o.Tickets)
	threads := min(o.Threads, to.Connections, o.Tickets)
	for i := range threads {
		f.parts = append(f.parts, newFiller(&f.tally, (o.Tickets+threads-1-i)/threads, f.host, to.Room))
	}
	showing, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { progress(showing, os.Stderr, f.line()) })
	defer wg.Wait()
	defer stop()
	f.started = time.Now()
	filling, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if err := f.poll(filling, func(time.Duration) bool { return f.tally.settledAt.Load() > 0 }); err != nil {
		return report, err
	}
	if f.tally.settledAt.Load() > 0 {
		if err := f.held(ctx); err != nil {
			return report, err
		}
	}
	stop()
	wg.Wait()
	return f.report(ownCPU() - used), nil
}

// held is what follows when all are in.
func (f *fill) held(ctx context.Context) error {
	fmt.Fprintf(os.Stderr, "all %d are in after %s\n", f.o.Tickets, time.Duration(f.tally.settledAt.Load())*time.Millisecond)
	select {
	case <-time.After(time.Second): // by then the snapshot holds the last of them
	case <-ctx.Done():
	}
	if err := f.rank(ctx); err != nil {
		return err
	}
	if f.o.TokensOut != "" {
		shelves := make([]*shelf, len(f.parts))
		for i, p := range f.parts {
			shelves[i] = p.tokens
		}
		n, err := saveTokens(f.o.TokensOut, shelves)
		if err != nil {
			return fmt.Errorf("--tokens-out: %w", err)
		}
		fmt.Fprintf(os.Stderr, "%d tokens are in %s\n", n, f.o.TokensOut)
	}
	if f.o.Hold == 0 {
		return nil
	}
	if err := f.poll(ctx, func(now time.Duration) bool { return now >= f.o.Hold }); err != nil {
		return err
	}
	return f.rank(context.WithoutCancel(ctx)) // who ends a hold wants to know how it went
}

// poll runs the parts until all is done that was wanted of them, or ctx ends.
func (f *fill) poll(ctx context.Context, done func(now time.Duration) bool) error {
	loop := wire.Loop{Addrs: f.addrs, Connections: f.to.Connections / len(f.parts), Timeout: f.to.Timeout, Kinds: fillKinds}
	results := make([]wire.Result, len(f.parts))
	group, gctx := errgroup.WithContext(ctx)
	begun := time.Since(f.started)
	for i, p := range f.parts {
		p.begun, p.until = begun, done
		group.Go(func() (err error) {
			results[i], err = loop.Run(gctx, p)
			return err
		})
	}
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	for _, p := range f.parts {
		if p.refused != nil {
			return p.refused
		}
	}
	elapsed := f.result.Elapsed
	for _, r := range results {
		if f.result.Errors == nil {
			f.result = r
			continue
		}
		f.result.Merge(r)
	}
	f.result.Elapsed = elapsed + results[0].Elapsed
	return nil
}

// line says how the fill is doing; polls a second are the mean since the last line.
func (f *fill) line() func() string {
	last, lastPolls := time.Now(), int64(0)
	return func() string {
		t := &f.tally
		now, polls := time.Now(), t.polls.Load()
		speed := float64(polls-lastPolls) / max(now.Sub(last).Seconds(), 0.001)
		last, lastPolls = now, polls
		return fmt.Sprintf("joined %d · in the store %d · let in %d · lost %d · %.0f polls/s · positions that grew %d · %d wait in the room",
			t.joined.Load(), t.settled.Load(), t.inside.Load(), t.lost.Load(), speed, t.grewLater.polls.Load(), t.waiting.Load())
	}
}
