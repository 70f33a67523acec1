package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

const (
	heldJobs      = 10
	recoveryLease = 2 * time.Second
)

// recovery holds the time until the jobs of a killed process started again, by side.
type recovery struct {
	took map[string]time.Duration
	err  error
}

// hold starts a process that takes jobs and never ends them, and returns what kills it, and its output.
type hold = func(*rig.Run) (kill func(), log *rig.Tail)

// startRecovery kills a worker of each side on a Redis of its own, beside the other parts, since it takes minutes of waiting.
func (b *bench) startRecovery() {
	ctx, cancel := context.WithCancel(b)
	withBullMQ := slices.ContainsFunc(b.peers, func(p peer) bool { return p.name() == "bullmq" })
	go func() {
		found := recovery{took: map[string]time.Duration{}}
		found.err = rig.Do(ctx, b.Out, func(r *rig.Run) {
			redis := startRedis(r, b.aof)
			measure := func(s side, h hold) {
				found.took[s.name()] = killed(r, s, h)
				rig.Say("recovery after kill -9: %s %.2f s", s.name(), found.took[s.name()].Seconds())
			}
			measure(newOurs(redis, recoveryLease), holder("ours", redis.Addr, ""))
			rig.Check(redis.Empty(r)) // before the bulkworker, which writes its layout, starts
			api, url := startAPI(r, b.bulkworker, redis, recoveryLease)
			measure(&pulled{newOurs(redis, recoveryLease), url}, holder("pulled", redis.Addr, url))
			api.Stop()
			measure(newAsynq(redis), holder("asynq", redis.Addr, ""))
			if withBullMQ {
				s := newBullMQ(r, redis, b.bullmq, 1)
				measure(s, s.hold)
			}
		})
		b.recovered <- found
	}()
	b.Cleanup(func() {
		cancel()
		<-b.recovered
	})
}

func (b *bench) recoveryRows() []table.Row {
	rig.Say("waiting for the peers to find the jobs of a killed worker")
	r := <-b.recovered
	b.recovered <- r
	rig.Check(r.err)
	seconds := func(side string) float64 { return r.took[side].Seconds() }
	bars := []table.Bar{{Limit: 3, AtMost: true}}
	peers := []float64{seconds("asynq"), seconds("bullmq")} // BullMQ is the first of the further peers
	return []table.Row{
		{What: "a killed worker's jobs start again (our lease 2 s)", Unit: "s", Peers: peers, Ours: seconds("ours"), Bars: bars},
		{What: "  those of a killed worker that pulls", Unit: "s", Ours: seconds("pulled"), Bars: bars},
	}
}

// holder returns a function that starts this program as the process that is killed.
func holder(side, addr, url string) hold {
	return func(*rig.Run) (kill func(), log *rig.Tail) {
		c := rig.Must(rig.Start("holder", rig.Must(os.Executable()), "hold", "--side", side, "--redis", addr, "--url", url))
		return c.Kill, c.Log
	}
}

// hold starts a Node process that takes the jobs and never ends them.
func (s *bullmqSide) hold(r *rig.Run) (kill func(), log *rig.Tail) {
	n := startNode(r, s.redis, s.dir)
	n.handle.Store(new(handler(func(context.Context, string) {})))
	rig.Check(n.do(r, "hold", heldJobs))
	return n.kill, &rig.Tail{} // its errors are on stderr
}

// killed lets a process take ten jobs, kills it, and returns when another one has started all ten.
func killed(r *rig.Run, s side, h hold) time.Duration {
	limit, cancel := context.WithTimeout(r, 5*time.Minute)
	defer cancel()
	rig.Check(s.fill(r, []int{heldJobs}))
	kill, log := h(r)
	defer kill()
	for running := int64(0); running < heldJobs; {
		_, running = left(r, s, 1)
		rig.Require(rig.Sleep(limit, 10*time.Millisecond), "%s: the worker to be killed takes no jobs\n%s", s.name(), log)
	}
	again := make(chan time.Time, 2*heldJobs)
	stop := rig.Must(s.start(heldJobs, 1, func(context.Context, string) { again <- time.Now() }))
	defer stop()
	at := time.Now()
	kill()
	var last time.Time
	for range heldJobs {
		select {
		case last = <-again:
		case <-limit.Done():
			rig.Check(fmt.Errorf("%s: jobs of a killed worker do not start again", s.name()))
		}
	}
	return last.Sub(at)
}

// holdCommand returns the command of the process that is killed.
func holdCommand() *cobra.Command {
	var which, addr, url string
	cmd := rig.Command("hold", "", "", func(r *rig.Run) {
		redis := r.OpenRedis(addr)
		var s side = newAsynq(redis)
		switch which {
		case "ours":
			s = newOurs(redis, recoveryLease)
		case "pulled":
			s = &pulled{newOurs(redis, recoveryLease), url}
		}
		ctx, cancel := context.WithTimeout(r, 10*time.Minute) // if the parent has ended
		defer cancel()
		rig.Must(s.start(heldJobs, 1, func(context.Context, string) { <-ctx.Done() }))
		<-ctx.Done()
		rig.Check(errors.New("this process was not killed"))
	})
	cmd.Hidden = true
	cmd.Flags().StringVar(&which, "side", "", "asynq, ours or pulled")
	cmd.Flags().StringVar(&addr, "redis", "", "the address of Redis")
	cmd.Flags().StringVar(&url, "url", "", "the address of the API, of pulled")
	return cmd
}
