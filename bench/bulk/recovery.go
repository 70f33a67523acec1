package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/child"
)

const heldJobs = 10

// recovery is how long jobs of a killed process waited until they started again.
type recovery struct {
	asynq, ours time.Duration
	err         error
}

// recoveries kills a worker of each side, on a Redis of its own.
func recoveries(ctx context.Context, dir string, aof bool) (r recovery) {
	redis, err := startRedis(ctx, dir, aof)
	if err != nil {
		return recovery{err: err}
	}
	defer redis.stop()
	if r.ours, err = recoverySeen(ctx, newOurs(redis, 2*time.Second), "ours"); err != nil {
		return recovery{err: err}
	}
	say("recovery after kill -9: ours %.2f s", r.ours.Seconds())
	if r.asynq, err = recoverySeen(ctx, newAsynq(redis), "asynq"); err != nil {
		return recovery{err: err}
	}
	say("recovery after kill -9: asynq %.1f s", r.asynq.Seconds())
	return r
}

// recoverySeen lets a process take ten jobs, kills it, and waits until another has started all ten.
func recoverySeen(ctx context.Context, s side, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := s.fill(ctx, []int{heldJobs}); err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	var addr string
	switch s := s.(type) {
	case *ours:
		addr = s.redis.addr
	case *asynqSide:
		addr = s.redis.addr
	}
	holder, err := child.Start("holder", self, "hold", "--side", name, "--redis", addr)
	if err != nil {
		return 0, err
	}
	defer holder.Kill()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		_, running, err := s.left(ctx, 1)
		if err != nil {
			return 0, fmt.Errorf("%w\n%s", err, holder.Log)
		}
		if running == heldJobs {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("%s: the worker to be killed takes no jobs\n%s", name, holder.Log)
		}
	}
	again := make(chan time.Time, 2*heldJobs)
	stop, err := s.start(heldJobs, 1, func(context.Context, string) { again <- time.Now() })
	if err != nil {
		return 0, err
	}
	defer stop()
	killed := time.Now()
	holder.Kill()
	var last time.Time
	for range heldJobs {
		select {
		case last = <-again:
		case <-ctx.Done():
			return 0, fmt.Errorf("%s: jobs of a killed worker do not start again", name)
		}
	}
	return last.Sub(killed), nil
}

// holdCommand is the process that is killed.
func holdCommand() *cobra.Command {
	var which, addr string
	cmd := &cobra.Command{Use: "hold", Hidden: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		r, err := openRedis(addr)
		if err != nil {
			return err
		}
		var s side = newAsynq(r)
		if which == "ours" {
			s = newOurs(r, 2*time.Second)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Minute) // should nobody kill it
		defer cancel()
		if _, err := s.start(heldJobs, 1, func(context.Context, string) { <-ctx.Done() }); err != nil {
			return err
		}
		<-ctx.Done()
		return errors.New("nobody has killed this process")
	}}
	cmd.Flags().StringVar(&which, "side", "", "asynq or ours")
	cmd.Flags().StringVar(&addr, "redis", "", "its address")
	return cmd
}
