package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

// StreamsReport is the result of visitors who only listen.
type StreamsReport struct {
	Streams     int          `json:"streams"`
	Open        int64        `json:"open"` // at the same time
	Silent      int          `json:"told_nothing"`
	First       Quantiles    `json:"first_event"`
	Turns       Quantiles    `json:"turn_told_after"` // from the admission to the event
	Events      int64        `json:"events"`
	Bytes       int64        `json:"bytes"`
	Admitted    int64        `json:"admitted"`
	Missed      int          `json:"admitted_and_not_told"`
	NotClaimed  int64        `json:"claims_failed"`
	Ended       int64        `json:"ended_by_gateway"` // before the admission
	NotOpened   table.Causes `json:"not_opened"`
	MovedBehind int64        `json:"position_grew"`
	Lost        table.Causes `json:"lost_places"`
	Kept        bool         `json:"kept"`
}

// listeners are visitors who only listen to event streams.
type listeners struct {
	client  *visitor.Client
	room    string
	addrs   []*net.TCPAddr
	workers int
	all     []listener

	first, turns *latency

	table.Counts
	report StreamsReport // counts so far; Open is the streams that are open now
}

// listener is one visitor.
type listener struct {
	cr       visitor.Credentials
	retry    time.Duration // the delay before the stream is opened again
	position int64
	received atomic.Bool // an event has arrived
	over     atomic.Bool
}

// perAddress is the number of connections from one local address, which is limited by its ports.
const perAddress = 20_000

func newListeners(client *visitor.Client, room string, addrs []*net.TCPAddr, workers, n int) *listeners {
	return &listeners{client: client, room: room, addrs: addrs, workers: workers, all: make([]listener, n), first: newLatency(), turns: newLatency(),
		report: StreamsReport{Streams: n, Lost: table.Causes{}, NotOpened: table.Causes{}}}
}

// openRate is how many streams are opened a second.
const openRate = 2000

// run opens the streams and holds them, unless all visitors are admitted sooner.
func (l *listeners) run(ctx context.Context, hold, opening time.Duration) StreamsReport {
	rig.Check(l.join(ctx))
	l.client.Close()
	listening, stop := context.WithCancel(ctx)
	defer stop()
	var opened, over sync.WaitGroup
	began := time.Now()
	for i := range l.all {
		if !rig.Sleep(ctx, time.Until(began.Add(time.Duration(i)*time.Second/openRate))) {
			rig.Check(ctx.Err())
		}
		opened.Add(1)
		over.Go(func() { l.listen(listening, i, sync.OnceFunc(opened.Done)) })
	}
	allOpen, allOver := make(chan struct{}), make(chan struct{})
	go func() { opened.Wait(); close(allOpen) }()
	go func() { over.Wait(); close(allOver) }()
	select {
	case <-allOpen:
	case <-time.After(opening):
	}
	l.Lock()
	open := l.report.Open
	l.Unlock()
	rig.Say("%d streams are open after %s", open, time.Since(began).Round(time.Millisecond))
	select {
	case <-time.After(hold):
	case <-allOver:
	case <-ctx.Done():
	}
	l.ask()
	stop()
	<-allOver
	r := &l.report
	r.Open, r.First, r.Turns = open, l.first.quantiles(), l.turns.quantiles()
	for i := range l.all {
		if me := &l.all[i]; !me.received.Load() && !me.over.Load() {
			r.Silent++
		}
	}
	r.Kept = r.Silent == 0 && r.Missed == 0 && r.NotClaimed == 0 && len(r.Lost) == 0
	return *r
}

// join joins with every visitor.
func (l *listeners) join(ctx context.Context) error {
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(l.workers)
	for i := range l.all {
		group.Go(func() error {
			if gctx.Err() != nil {
				return gctx.Err()
			}
			me := &l.all[i]
			r, err := l.client.Join(&me.cr)
			if err == nil && me.cr.Token == "" && me.cr.Pass == "" {
				err = fmt.Errorf("join: %d %s", r.HTTP, r.Status.Code)
			}
			if me.cr.Pass != "" {
				l.Add(&l.report.Admitted, 1)
				me.over.Store(true)
			}
			return err
		})
	}
	return group.Wait()
}

// listen keeps a stream open until its visitor is admitted or ctx ends. It calls opened after the first event, or at the end.
func (l *listeners) listen(ctx context.Context, i int, opened func()) {
	defer opened()
	me := &l.all[i]
	for !me.over.Load() {
		me.retry = 3 * time.Second
		if err := l.stream(ctx, i, opened); err != nil && ctx.Err() == nil {
			l.Note(l.report.Lost, err.Error(), 1)
			return
		}
		if me.over.Load() || !rig.Sleep(ctx, me.retry/2+rand.N(me.retry)) { //nolint:gosec // jitter is no secret
			return
		}
	}
}

// fail counts a stream that could not be opened. It is opened again.
func (l *listeners) fail(why string) error {
	l.Note(l.report.NotOpened, why, 1)
	return nil
}

// stream opens a stream and reads it to its end. It returns an error if the place is lost.
func (l *listeners) stream(ctx context.Context, i int, opened func()) error {
	me := &l.all[i]
	addr := l.addrs[i%len(l.addrs)]
	var d net.Dialer
	if addr.IP.IsLoopback() && addr.IP.To4() != nil {
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i/perAddress))}
	}
	c, hangUp, err := dial(ctx, d, addr.String())
	if err != nil {
		return l.fail(cause(err))
	}
	defer hangUp()
	began := time.Now()
	if _, err := fmt.Fprintf(c, "GET /.waiting-room/%s/events HTTP/1.1\r\nHost: %s\r\nUser-Agent: anteroom-loadgen\r\nX-Waiting-Room-Token: %s\r\n\r\n", l.room, addr, me.cr.Token); err != nil {
		return l.fail(cause(err))
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 1024), nil)
	switch {
	case err != nil:
		return l.fail(cause(err))
	case resp.StatusCode == http.StatusUnauthorized:
		return errors.New("the token was refused")
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		me.retry = time.Duration(s) * time.Second
	}
	if resp.StatusCode != http.StatusOK {
		return l.fail(strconv.Itoa(resp.StatusCode))
	}
	l.Add(&l.report.Open, 1)
	defer l.Add(&l.report.Open, -1)
	event := ""
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 1024), 1<<16)
	for lines.Scan() {
		l.Add(&l.report.Bytes, int64(len(lines.Bytes())+1))
		name, v, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "retry":
			if ms, err := strconv.Atoi(v); err == nil {
				me.retry = time.Duration(ms) * time.Millisecond
			}
		case "event":
			event = v
		case "data":
			l.Add(&l.report.Events, 1)
			if !me.received.Swap(true) {
				l.first.record(time.Since(began))
			}
			opened()
			var r visitor.Response
			if err := json.Unmarshal([]byte(v), &r.Status); err != nil {
				return fmt.Errorf("event: %w", err)
			}
			if last, err := l.event(me, event, &r); last {
				return err
			}
		}
	}
	if !errors.Is(lines.Err(), net.ErrClosed) {
		l.Add(&l.report.Ended, 1)
	}
	return nil
}

// event records an event. It returns whether the event is the last one, and an error if the place is lost.
func (l *listeners) event(me *listener, event string, r *visitor.Response) (last bool, err error) {
	s := &r.Status
	if s.Token != "" {
		me.cr.Token = s.Token
	}
	if event == "admitted" {
		me.over.Store(true)
		if at := r.AdmittedAt(); at > 0 && me.position > 0 { // else the visitor was admitted before the stream was opened
			l.turns.record(max(0, time.Since(time.UnixMicro(at))))
		}
		l.Add(&l.report.Admitted, 1)
		if a, err := l.client.Claim(&me.cr); err != nil || a.Status.Pass == "" {
			l.Add(&l.report.NotClaimed, 1)
		}
		return true, nil
	}
	if s.State != "waiting" {
		me.over.Store(true)
		return true, fmt.Errorf("%s %s", s.State, s.Reason)
	}
	if me.position > 0 && s.Position > me.position {
		l.Add(&l.report.MovedBehind, 1)
	}
	me.position = s.Position
	return false, nil
}

// ask polls some of the waiting visitors: admitted ones must receive an event.
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
			l.Note(l.report.Lost, a.Status.State+" "+a.Status.Reason, 1)
			continue
		}
		for until := time.Now().Add(5 * time.Second); !me.over.Load(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(until) {
				l.report.Missed++
				break
			}
		}
	}
}

func (l *listeners) line() string {
	q := l.turns.quantiles()
	l.Lock()
	defer l.Unlock()
	r := &l.report
	return fmt.Sprintf("open %d · events %d · admitted %d (event after p50 %.0f p99 %.0f ms) · ended %d · not opened %d · position grew %d",
		r.Open, r.Events, r.Admitted, q.P50, q.P99, r.Ended, r.NotOpened.Sum(), r.MovedBehind)
}
