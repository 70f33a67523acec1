package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/anteroom/anteroom/bench/child"
)

// checkAbsence makes renewals come within a minute of the fill.
const (
	checkAbsence = 4 * time.Minute
	checkRate    = 20
)

// measured is what a line of real tickets took, in the units of an Outcome.
type measured struct {
	polls, calls, commands, redisCPU, redisMem, redisIn, redisOut, cpu, memory, letIn float64
}

// check fills lines, keeps them polling, and prints what they took beside what the model says.
func check(ctx context.Context, out io.Writer, c *Calibration, o options, dir string) error {
	fmt.Fprintf(out, "\nMeasured with one gateway and a redis-server on this machine (absence %s, %d let in a second who do not shop; %s of polling; %s):\n\n", checkAbsence, checkRate, o.window, loadAverage())
	for _, n := range o.check {
		m, err := fillAndWatch(ctx, o, n, filepath.Join(dir, fmt.Sprint("check", n)))
		if err != nil {
			return err
		}
		r := Room{Waiting: float64(n), Rate: checkRate, Absence: checkAbsence, Claim: 5 * time.Minute, Budget: 20_000, Visit: 450 * time.Second, TTL: 5 * time.Minute, Gateways: 1, Cores: 2}
		u := r.Outcome(c)
		u.RedisMem = c.RedisBase + r.Waiting*c.at(r.Waiting).Bytes + m.letIn*c.Gone // nobody has been forgotten yet
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "%s waiting\tsimulated\tmeasured\terror\t\n", number(float64(n)))
		for _, row := range []struct {
			name      string
			sim, real float64
		}{
			{"polls/s", u.Polls, m.polls}, {"scripts/s", u.Calls, m.calls}, {"store commands/s", u.Commands, m.commands},
			{"Redis CPU, % of a core", 100 * u.RedisCPU, 100 * m.redisCPU}, {"Redis memory, MB", u.RedisMem / 1e6, m.redisMem / 1e6},
			{"to Redis, Mbit/s", mbit(u.RedisIn), mbit(m.redisIn)}, {"from Redis, Mbit/s", mbit(u.RedisOut), mbit(m.redisOut)},
			{"gateway CPU, % of a core", 100 * u.CPU, 100 * m.cpu}, {"gateway memory, MB", u.Memory / 1e6, m.memory / 1e6},
		} {
			fmt.Fprintf(w, "%s\t%s\t%s\t%+.0f %%\t\n", row.name, number(row.sim), number(row.real), 100*(row.sim/row.real-1))
		}
		fmt.Fprintln(w, "\t\t\t\t")
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// fillAndWatch looks at the line from when its polls have spread: a longest interval after it was filled.
func fillAndWatch(ctx context.Context, o options, n int, dir string) (m measured, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return m, err
	}
	b, err := o.open(ctx, dir, checkRate, checkAbsence)
	if err != nil {
		return m, err
	}
	defer b.close()
	opened := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	var filled filledReport
	go func() {
		done <- b.load(ctx, &filled, "fill", "--room", "line", "--tickets", fmt.Sprint(n), "--connections", "512", "--sample", "0",
			"--tokens-out", filepath.Join(dir, "tokens"), "--hold", "1h", "--timeout", "15m")
	}()
	// The tokens are there when all are in.
	for {
		if _, err := os.Stat(filepath.Join(dir, "tokens")); err == nil {
			break
		}
		select {
		case err := <-done:
			return m, fmt.Errorf("the fill ended early: %w", err)
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return m, ctx.Err()
		}
	}
	say("%d are in; they poll", n)
	if err := pause(ctx, checkAbsence/4+5*time.Second); err != nil {
		return m, err
	}
	before, err := b.redis.Stats(ctx)
	if err != nil {
		return m, err
	}
	answered, err := b.answered(ctx)
	if err != nil {
		return m, err
	}
	µs, err := b.spent(0, func() error { return pause(ctx, o.window) })
	if err != nil {
		return m, err
	}
	after, err := b.redis.Stats(ctx)
	if err != nil {
		return m, err
	}
	more, err := b.answered(ctx)
	if err != nil {
		return m, err
	}
	mem, err := child.Memory(b.gateway.PID())
	if err != nil {
		return m, err
	}
	d, s := after.Since(before), after.At.Sub(before.At).Seconds()
	per := func(x int64) float64 { return float64(x) / s }
	return measured{
		polls: (more - answered) / s, calls: per(d.Calls), commands: per(d.Commands), redisCPU: d.CPU.Seconds() / s, redisMem: float64(after.Memory - after.Clients),
		redisIn: per(d.In), redisOut: per(d.Out), cpu: µs / 1e6 / s, memory: float64(mem), letIn: checkRate * time.Since(opened).Seconds(),
	}, nil
}

// answered is how many polls of the line the gateway has answered.
func (b *booth) answered(ctx context.Context) (sum float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "anteroom_requests_total{") && strings.Contains(line, `room="line"`) {
			n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", line, err)
			}
			sum += n
		}
	}
	return sum, lines.Err()
}
