package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/anteroom/anteroom/bench/table"
)

// shot is one run of a side.
type shot struct {
	Rate     float64 // jobs a second
	StoreCPU float64 // microseconds of Redis's processor time a job
	CPU      float64 // … of this process, the side's worker
}

// drain fills a side and runs its jobs on workers until so many have run; where that is all of them, until the store has
// their acks too.
func (b *bench) drain(ctx context.Context, s side, what string, workers int, jobs []int, until int) (shot, error) {
	if err := b.redis.empty(ctx); err != nil {
		return shot{}, err
	}
	if err := s.fill(ctx, jobs); err != nil {
		return shot{}, err
	}
	runtime.GC()
	if s == b.sides[1] {
		end, err := b.profile(what)
		if err != nil {
			return shot{}, err
		}
		defer end()
	}
	var ran atomic.Int64
	enough := make(chan struct{})
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	store, err := b.redis.cpu(ctx)
	if err != nil {
		return shot{}, err
	}
	own, began := ownCPU(), time.Now()
	stop, err := s.start(workers, len(jobs), func(context.Context, string) {
		if ran.Add(1) == int64(until) {
			close(enough)
		}
	})
	if err != nil {
		return shot{}, err
	}
	defer stop()
	select {
	case <-enough:
	case <-ctx.Done():
		return shot{}, fmt.Errorf("%s: %d of %d jobs have run in two minutes", s.name(), ran.Load(), until)
	}
	for until == total(jobs) {
		left, _, err := s.left(ctx, len(jobs))
		if err != nil {
			return shot{}, err
		}
		if left == 0 {
			break
		}
	}
	took := time.Since(began)
	own = ownCPU() - own
	after, err := b.redis.cpu(ctx)
	if err != nil {
		return shot{}, err
	}
	n := float64(until)
	return shot{Rate: n / took.Seconds(), StoreCPU: float64((after - store).Microseconds()) / n, CPU: float64(own.Microseconds()) / n}, nil
}

// ownCPU is the processor time that this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// profile begins a processor profile, where one is asked for; the last round's is kept.
func (b *bench) profile(name string) (end func(), err error) {
	if b.profiles == "" {
		return func() {}, nil
	}
	file, err := os.Create(filepath.Join(b.profiles, strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-")+".pb"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}

// medians of several shots.
func medians(shots []shot) shot {
	var rate, store, cpu []float64
	for _, s := range shots {
		rate, store, cpu = append(rate, s.Rate), append(store, s.StoreCPU), append(cpu, s.CPU)
	}
	return shot{table.Median(rate), table.Median(store), table.Median(cpu)}
}

// compared runs drain for both sides in turns, each until as many jobs have run as until says for it.
func (b *bench) compared(ctx context.Context, what string, rounds, workers int, jobs []int, until [2]int) ([2]shot, error) {
	var shots [2][]shot
	err := inTurns(rounds, func(r, i int) error {
		s, err := b.drain(ctx, b.sides[i], what, workers, jobs, until[i])
		if err != nil {
			return err
		}
		say("%s, round %d of %d: %-6s %8.0f/s  %5.1f µs of Redis, %5.1f µs of the worker a job", what, r+1, rounds, b.sides[i].name(), s.Rate, s.StoreCPU, s.CPU)
		shots[i] = append(shots[i], s)
		return nil
	})
	return [2]shot{medians(shots[0]), medians(shots[1])}, err
}

// processing measures no-op jobs from the queue to their ack.
func processing(ctx context.Context, b *bench) ([]table.Row, error) {
	var rows []table.Row
	for _, c := range []struct{ workers, tenants int }{{10, 1}, {50, 1}, {200, 1}, {10, 10}, {50, 10}, {50, 100}} {
		what := fmt.Sprintf("process, %d workers, %d tenants", c.workers, c.tenants)
		if c.tenants == 1 {
			what = fmt.Sprintf("process, %d workers, 1 tenant", c.workers)
		}
		jobs := evenly(b.jobs, c.tenants)
		s, err := b.compared(ctx, what, b.rounds, c.workers, jobs, [2]int{total(jobs), total(jobs)})
		if err != nil {
			return nil, err
		}
		rows = append(rows, table.Row{What: what, Unit: "/s", Peers: []float64{s[0].Rate}, Ours: s[1].Rate, Bars: []table.Bar{{Limit: 1, Ratio: true}, {Limit: 2, Ratio: true}}},
			table.Row{What: "  the worker's processor time", Unit: "µs a job", Peers: []float64{s[0].CPU}, Ours: s[1].CPU},
			table.Row{What: "  Redis's processor time", Unit: "µs a job", Peers: []float64{s[0].StoreCPU}, Ours: s[1].StoreCPU})
	}
	return rows, nil
}
