package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/visitor"
	"github.com/anteroom/anteroom/bench/wire"
)

func streamsCommand(s *shared) *cobra.Command {
	var n int
	var open float64
	var hold, opening time.Duration
	cmd := &cobra.Command{
		Use:   "streams",
		Short: "Join, and wait for the turn on event streams that stay open, without a poll",
		Long: `Each visitor joins, opens an event stream and does nothing else: its place has to be kept by the stream alone. Who is told
to be let in claims. A stream that ends is opened again with the newest token, after the time that the gateway asked for.
Exit status 1 if a stream was told nothing, a place was lost, or somebody was let in and not told.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 1 || open <= 0 || hold <= 0 {
				return fmt.Errorf("--streams %d, --open-rate %v, --hold %s: want at least 1, more than 0, more than 0s", n, open, hold)
			}
			_, addrs, err := plain(s.to.URLs)
			if err != nil {
				return err
			}
			client, err := s.client()
			if err != nil {
				return err
			}
			defer client.Close()
			l := &listeners{client: client, room: s.to.Room, addrs: addrs, workers: s.workers, first: newLatency(), turns: newLatency(), lost: map[string]int{}, why: map[string]int{}, all: make([]listener, n)}
			showing, stop := context.WithCancel(cmd.Context())
			var shown sync.WaitGroup
			shown.Go(func() { progress(showing, os.Stderr, l.line) })
			err = l.run(cmd.Context(), open, hold, opening)
			stop()
			shown.Wait()
			if err != nil {
				return err
			}
			r := l.report()
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			if err = e.Encode(r); err == nil && !r.Kept {
				return errBroken
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&n, "streams", 20_000, "how many; each needs a file descriptor here and one in the gateway")
	f.Float64Var(&open, "open-rate", 2000, "streams opened a second")
	f.DurationVar(&hold, "hold", 30*time.Second, "how long they stay open after the last was opened, unless all are let in sooner")
	f.DurationVar(&opening, "open-wait", time.Minute, "how long the last may take to be told something")
	return cmd
}

// listeners are visitors who only listen.
type listeners struct {
	client    *visitor.Client
	room      string
	addrs     []*net.TCPAddr
	workers   int
	all       []listener
	first     *latency // until a stream is told how it stands
	turns     *latency // from being admitted to being told
	nowOpen   atomic.Int64
	mostOpen  int64
	events    atomic.Int64
	bytes     atomic.Int64
	admitted  atomic.Int64
	ended     atomic.Int64 // by the gateway, before the turn came
	failed    atomic.Int64 // to open
	behind    atomic.Int64 // told a larger position than before
	unclaimed atomic.Int64 // claims

	mu     sync.Mutex
	lost   map[string]int
	why    map[string]int // a stream could not be opened
	missed int
}

type listener struct {
	cr       visitor.Credentials
	retry    time.Duration
	position int64
	told     atomic.Bool // anything at all
	over     atomic.Bool
}

// perAddress is how many connections come from one address of this machine: it has no more ports.
const perAddress = 20_000

func (l *listeners) run(ctx context.Context, rate float64, hold, opening time.Duration) error {
	if err := l.join(ctx); err != nil {
		return err
	}
	l.client.Close()
	listening, stop := context.WithCancel(ctx)
	defer stop()
	var open, over sync.WaitGroup
	began := time.Now()
	for i := range l.all {
		due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return ctx.Err()
		}
		over.Add(1)
		open.Add(1)
		go func() {
			defer over.Done()
			l.listen(listening, i, sync.OnceFunc(open.Done))
		}()
	}
	allOpen, allOver := make(chan struct{}), make(chan struct{})
	go func() { open.Wait(); close(allOpen) }()
	go func() { over.Wait(); close(allOver) }()
	select {
	case <-allOpen:
	case <-time.After(opening):
	}
	l.mostOpen = l.nowOpen.Load()
	fmt.Fprintf(os.Stderr, "%d streams are open after %s\n", l.mostOpen, time.Since(began).Round(time.Millisecond))
	select {
	case <-time.After(hold):
	case <-allOver:
	case <-ctx.Done():
	}
	l.ask()
	stop()
	<-allOver
	return nil
}

// join gives each listener its ticket.
func (l *listeners) join(ctx context.Context) error {
	var next atomic.Int64
	errs := make(chan error, l.workers)
	for range l.workers {
		go func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(l.all) {
					break
				}
				a, err := l.client.Join(&l.all[i].cr)
				if err == nil && l.all[i].cr.Token == "" && l.all[i].cr.Pass == "" {
					err = fmt.Errorf("join: %d %s", a.HTTP, a.Status.Code)
				}
				if err != nil {
					errs <- err
					return
				}
				if l.all[i].cr.Pass != "" {
					l.admitted.Add(1)
					l.all[i].over.Store(true)
				}
			}
			errs <- ctx.Err()
		}()
	}
	var err error
	for range l.workers {
		if e := <-errs; err == nil {
			err = e
		}
	}
	return err
}

// listen keeps a stream open until its visitor is let in or ctx ends. opened is called when it has been told something, or
// will not be.
func (l *listeners) listen(ctx context.Context, i int, opened func()) {
	defer opened()
	me := &l.all[i]
	for ctx.Err() == nil && !me.over.Load() {
		me.retry = 3 * time.Second
		if err := l.once(ctx, i, opened); err != nil && ctx.Err() == nil {
			l.lose(err.Error())
			return
		}
		if me.over.Load() {
			return
		}
		select {
		case <-time.After(me.retry/2 + time.Duration(rand.Int64N(int64(me.retry)))): //nolint:gosec // as asked, and a little spread: no secret
		case <-ctx.Done():
		}
	}
}

func (l *listeners) lose(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[why]++
}

func (l *listeners) fail(why string) {
	l.failed.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why[why]++
}

// once opens a stream and reads it to its end. An error says that the place is lost; one that was not to be had, or that
// ended, is none.
func (l *listeners) once(ctx context.Context, i int, opened func()) error {
	me := &l.all[i]
	addr := l.addrs[i%len(l.addrs)]
	d := net.Dialer{Timeout: 10 * time.Second}
	if addr.IP.IsLoopback() && addr.IP.To4() != nil {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i/perAddress))}
	}
	c, err := d.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		l.fail(wire.Cause(err))
		return nil //nolint:nilerr // it is tried again
	}
	defer c.Close()
	unblock := context.AfterFunc(ctx, func() { c.Close() })
	defer unblock()
	began := time.Now()
	if _, err := fmt.Fprintf(c, "GET /.waiting-room/%s/events HTTP/1.1\r\nHost: %s\r\nUser-Agent: anteroom-loadgen\r\nX-Waiting-Room-Token: %s\r\n\r\n", l.room, addr, me.cr.Token); err != nil {
		l.fail(wire.Cause(err))
		return nil //nolint:nilerr // it is tried again
	}
	r := bufio.NewReaderSize(c, 1024)
	status, err := l.header(r, me)
	switch {
	case err != nil:
		l.fail(wire.Cause(err))
		return nil //nolint:nilerr // it is tried again
	case status == 401:
		return errors.New("the token was refused")
	case status != 200:
		l.fail(strconv.Itoa(status))
		return nil
	}
	l.nowOpen.Add(1)
	defer l.nowOpen.Add(-1)
	return l.read(r, me, func() {
		if !me.told.Swap(true) {
			l.first.record(time.Since(began))
		}
		opened()
	})
}

func (l *listeners) header(r *bufio.Reader, me *listener) (status int, err error) {
	for n := 0; ; n++ {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimSpace(line)
		if n == 0 && len(line) > 12 {
			status, _ = strconv.Atoi(string(line[9:12]))
		}
		if name, v, _ := bytes.Cut(line, []byte(": ")); string(name) == "Retry-After" {
			if s, err := strconv.Atoi(string(v)); err == nil {
				me.retry = time.Duration(s) * time.Second
			}
		}
		if len(line) == 0 {
			return status, nil
		}
	}
}

// read takes events in until the stream ends.
func (l *listeners) read(r *bufio.Reader, me *listener, told func()) error {
	event := ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			if !errors.Is(err, net.ErrClosed) && !me.over.Load() {
				l.ended.Add(1)
			}
			return nil //nolint:nilerr // it is tried again
		}
		l.bytes.Add(int64(len(line)))
		name, v, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		switch name {
		case "retry":
			if ms, err := strconv.Atoi(v); err == nil {
				me.retry = time.Duration(ms) * time.Millisecond
			}
		case "event":
			event = v
		case "data":
			l.events.Add(1)
			var s visitor.Status
			if err := json.Unmarshal([]byte(v), &s); err != nil {
				return fmt.Errorf("event: %w", err)
			}
			told()
			if done, err := l.hear(me, event, &s); done {
				return err
			}
		}
	}
}

// hear takes one event in, and tells whether it was the last.
func (l *listeners) hear(me *listener, event string, s *visitor.Status) (done bool, err error) {
	if s.Token != "" {
		me.cr.Token = s.Token
	}
	if event == "admitted" {
		me.over.Store(true)
		if at, err := time.Parse(time.RFC3339Nano, s.AdmittedAt); err == nil && me.position > 0 { // else it was before the stream
			l.turns.record(max(0, time.Since(at)))
		}
		l.admitted.Add(1)
		if a, err := l.client.Claim(&me.cr); err != nil || a.Status.Pass == "" {
			l.unclaimed.Add(1)
		}
		return true, nil
	}
	if s.State != "waiting" {
		me.over.Store(true)
		return true, fmt.Errorf("%s %s", s.State, s.Reason)
	}
	if me.position > 0 && s.Position > me.position {
		l.behind.Add(1)
	}
	me.position = s.Position
	return false, nil
}

// ask polls some of those who wait: whoever was let in must hear of it.
func (l *listeners) ask() {
	asked := 0
	for i := range l.all {
		me := &l.all[i]
		if me.over.Load() || asked == 500 {
			continue
		}
		asked++
		cr := me.cr
		a, err := l.client.Status(&cr)
		switch {
		case err != nil || a.Status.State == "waiting":
			continue
		case a.Status.State != "admitted" && a.Status.State != "active":
			l.lose(a.Status.State + " " + a.Status.Reason)
			continue
		}
		for until := time.Now().Add(5 * time.Second); !me.over.Load(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(until) {
				l.missed++
				break
			}
		}
	}
}

func (l *listeners) line() string {
	q := l.turns.quantiles()
	return fmt.Sprintf("open %d · events %d · let in %d (told after p50 %.0f p99 %.0f ms) · ended %d · not opened %d · position grew %d",
		l.nowOpen.Load(), l.events.Load(), l.admitted.Load(), q.P50, q.P99, l.ended.Load(), l.failed.Load(), l.behind.Load())
}

type streamsReport struct {
	Streams     int            `json:"streams"`
	Open        int64          `json:"open"` // at a time
	Untold      int            `json:"told_nothing"`
	First       quantiles      `json:"first_event"`
	Turns       quantiles      `json:"turn_told_after"`
	Events      int64          `json:"events"`
	Bytes       int64          `json:"bytes"`
	Admitted    int64          `json:"admitted"`
	Missed      int            `json:"admitted_and_not_told"`
	NotClaimed  int64          `json:"claims_failed"`
	Ended       int64          `json:"ended_by_gateway"`
	NotOpened   map[string]int `json:"not_opened"` // at first
	MovedBehind int64          `json:"position_grew"`
	Lost        map[string]int `json:"lost_places"`
	Kept        bool           `json:"kept"`
}

func (l *listeners) report() streamsReport {
	r := streamsReport{
		Streams: len(l.all), Open: l.mostOpen, First: l.first.quantiles(), Turns: l.turns.quantiles(), Events: l.events.Load(), Bytes: l.bytes.Load(),
		Admitted: l.admitted.Load(), Missed: l.missed, NotClaimed: l.unclaimed.Load(), Ended: l.ended.Load(), NotOpened: l.why,
		MovedBehind: l.behind.Load(), Lost: l.lost,
	}
	for i := range l.all {
		if me := &l.all[i]; !me.told.Load() && !me.over.Load() {
			r.Untold++
		}
	}
	r.Kept = r.Untold == 0 && r.Missed == 0 && r.NotClaimed == 0 && len(r.Lost) == 0
	return r
}
