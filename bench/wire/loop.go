package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// Source makes the requests of one loop and judges their answers. It is used by one goroutine.
type Source interface {
	// Next appends the k-th request to b. kind is an index into the result's kinds, tag what Answered gets.
	Next(k int, b []byte) (req []byte, kind, tag int)
	// Answered returns what was wrong with an answer, or nothing.
	Answered(kind, tag int, a *Answer) string
}

// Timetable is a source that knows itself when its requests are due; the loop's schedule is then of no account. All
// times are since the start of the loop.
type Timetable interface {
	Source
	// Due says since when the next request has been due; not ok: none is yet.
	Due(now time.Duration) (since time.Duration, ok bool)
	// Over says that nothing will be due any more. What is under way is waited for.
	Over(now time.Duration) bool
	// Failed hears that a request got no answer.
	Failed(kind, tag int)
}

// Loop sends requests when they are due, however fast they are answered. One that finds no connection free waits for it,
// and its latency counts from when it was due; so does whatever the loop itself is late by.
type Loop struct {
	Addrs       []*net.TCPAddr // connections take turns among them
	Connections int
	Schedule    Schedule // Rate 0: each connection as fast as it is answered
	Timeout     time.Duration
	Kinds       int
}

// quantum is how often a loop looks at the clock and at its sockets. What is due or arrives meanwhile is taken in one
// go, which makes a latency look worse by up to twice that.
const quantum = 200 * time.Microsecond

// Result of a loop. What was due during the ramp is in Errors only.
type Result struct {
	Latency []*hdrhistogram.Histogram // of each kind, in µs: from when a request was due to when its answer was read
	Sent    *hdrhistogram.Histogram   // from due to sent
	Errors  map[string]int64
	Asked   int           // requests, those of the ramp included
	Elapsed time.Duration // without the ramp
}

// Merge adds what another loop had at the same time.
func (r *Result) Merge(o Result) {
	for i, h := range o.Latency {
		r.Latency[i].Merge(h)
	}
	r.Sent.Merge(o.Sent)
	for why, n := range o.Errors {
		r.Errors[why] += n
	}
	r.Asked += o.Asked
	r.Elapsed = max(r.Elapsed, o.Elapsed)
}

// NewHistogram holds 1 µs to 2 min with three digits.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(2*time.Minute/time.Microsecond), 3)
}

// Record clamps to the histogram's range.
func Record(h *hdrhistogram.Histogram, d time.Duration) {
	if err := h.RecordValue(min(max(d.Microseconds(), 1), h.HighestTrackableValue())); err != nil {
		panic(err) // clamped
	}
}

// connection carries one request at a time.
type connection struct {
	socket     Socket
	to         *net.TCPAddr
	connecting bool
	due        time.Duration // of the request under way; all times are since the start
	used       time.Duration
	kind, tag  int
	out        []byte
	sent       int
	answer     Answer
}

type run struct {
	Loop
	src    Source
	table  Timetable // src, where it is one
	start  time.Time
	all    []connection
	free   []int32 // a ring, so that connections take turns
	first  int
	nfree  int
	busy   []int32
	fds    []unix.PollFd // of busy, in its order
	result Result
	k      int
}

// Run sends the source's requests and waits for their answers.
func (l Loop) Run(ctx context.Context, src Source) (Result, error) {
	r := &run{Loop: l, src: src}
	r.table, _ = src.(Timetable)
	r.result.Errors = map[string]int64{}
	r.result.Sent = NewHistogram()
	for range l.Kinds {
		r.result.Latency = append(r.result.Latency, NewHistogram())
	}
	defer func() {
		for i := range r.all {
			if r.all[i].socket >= 0 {
				r.all[i].socket.Close()
			}
		}
	}()
	r.all = make([]connection, l.Connections)
	r.free = make([]int32, l.Connections)
	sockets := make([]Socket, l.Connections)
	for i := range r.all {
		r.all[i].socket = -1
	}
	for i := range r.all {
		c := &r.all[i]
		c.to = l.Addrs[i%len(l.Addrs)]
		var err error
		if c.socket, err = Dial(c.to); err != nil {
			return r.result, err
		}
		sockets[i] = c.socket
		r.release(int32(i))
	}
	if err := connectAll(sockets, l.Timeout); err != nil {
		return r.result, err
	}
	runtime.LockOSThread() // and never unlocked: the thread's timers are not what others expect
	sharpen()
	r.start = time.Now()
	err := r.drive(ctx)
	r.result.Asked = r.k
	r.result.Elapsed = time.Since(r.start)
	if r.table == nil {
		r.result.Elapsed -= l.Schedule.Ramp
	}
	return r.result, err
}

func (r *run) release(i int32) {
	r.free[(r.first+r.nfree)%len(r.free)] = i
	r.nfree++
}

func (r *run) drive(ctx context.Context) error {
	if r.table != nil {
		return r.follow(ctx)
	}
	s := r.Schedule
	total, end := s.Total(), s.Ramp+s.Duration
	for {
		now := time.Since(r.start)
		stopping := ctx.Err() != nil
		if stopping {
			total = r.k
		}
		for r.nfree > 0 && !stopping {
			due := now
			if s.Rate > 0 {
				if r.k >= total {
					break
				}
				if due = s.Due(r.k); due > now {
					break
				}
			} else if now >= end {
				break
			}
			r.issue(due)
		}
		if len(r.busy) == 0 && (stopping || now >= end) && (s.Rate == 0 || r.k >= total) {
			return nil
		}
		if now > end+r.Timeout { // what is still under way is counted by collect
			if unsent := total - r.k; s.Rate > 0 && unsent > 0 {
				r.result.Errors["never sent: no connection was free"] += int64(unsent)
			}
			if len(r.busy) == 0 {
				return nil
			}
			total = r.k
		}
		if err := r.collect(now); err != nil {
			return err
		}
		if s.Rate > 0 || r.nfree == 0 {
			pause(quantum)
		}
	}
}

// follow is drive by a timetable.
func (r *run) follow(ctx context.Context) error {
	var over time.Duration // when nothing more was to be sent; 0: not yet
	for {
		now := time.Since(r.start)
		if over == 0 && (ctx.Err() != nil || r.table.Over(now)) {
			over = max(1, now)
		}
		for over == 0 && r.nfree > 0 {
			since, ok := r.table.Due(now)
			if !ok {
				break
			}
			r.issue(since)
		}
		if over > 0 && len(r.busy) == 0 {
			return nil
		}
		if err := r.collect(now); err != nil {
			return err
		}
		pause(quantum)
	}
}

// issue sends the next request on the connection that has been free for longest.
func (r *run) issue(due time.Duration) {
	i := r.free[r.first]
	r.first = (r.first + 1) % len(r.free)
	r.nfree--
	c := &r.all[i]
	c.out, c.kind, c.tag = r.src.Next(r.k, c.out[:0])
	c.due, c.sent = due, 0
	r.k++
	c.answer.begin()
	r.busy = append(r.busy, i)
	r.fds = append(r.fds, unix.PollFd{})
	at := len(r.busy) - 1
	now := time.Since(r.start)
	if c.socket >= 0 && now-c.used > time.Second && c.socket.Stale() { // the server may end what is idle
		c.socket.Close()
		c.socket = -1
	}
	if c.socket < 0 {
		if !r.redial(at) {
			return
		}
	}
	if due >= r.Schedule.Ramp || r.table != nil {
		Record(r.result.Sent, now-due)
	}
	r.push(at)
}

// redial connects anew for the request at busy[at]; where that fails, the request has failed.
func (r *run) redial(at int) bool {
	c := &r.all[r.busy[at]]
	var err error
	if c.socket, err = Dial(c.to); err != nil {
		r.fail(at, "connect: "+Cause(err))
		return false
	}
	c.connecting = true
	return true
}

// push writes what is left of a request, and says what the connection waits for.
func (r *run) push(at int) {
	c := &r.all[r.busy[at]]
	f := &r.fds[at]
	f.Fd, f.Events, f.Revents = int32(c.socket), unix.POLLOUT, 0
	if c.connecting {
		return
	}
	n, err := c.socket.Write(c.out[c.sent:])
	if err != nil {
		r.fail(at, "sending: "+Cause(err))
		return
	}
	if c.sent += n; c.sent == len(c.out) {
		f.Events = unix.POLLIN
	}
}

// fail counts a request that got no answer. The connection is made anew for the next one.
func (r *run) fail(at int, why string) {
	c := &r.all[r.busy[at]]
	if c.socket >= 0 {
		c.socket.Close()
		c.socket = -1
	}
	r.result.Errors[why]++
	if r.table != nil {
		r.table.Failed(c.kind, c.tag)
	}
	r.finish(at)
}

// finish frees the connection of busy[at].
func (r *run) finish(at int) {
	i, last := r.busy[at], len(r.busy)-1
	c := &r.all[i]
	c.connecting = false
	c.used = time.Since(r.start)
	if c.due >= r.Schedule.Ramp || r.table != nil {
		Record(r.result.Latency[c.kind], c.used-c.due)
	}
	r.busy[at], r.fds[at] = r.busy[last], r.fds[last]
	r.busy, r.fds = r.busy[:last], r.fds[:last]
	r.release(i)
}

// collect reads what has arrived.
func (r *run) collect(now time.Duration) error {
	if len(r.busy) == 0 {
		return nil
	}
	if err := look(r.fds); err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	for at := len(r.busy) - 1; at >= 0; at-- { // from the end, since finish puts the last in the place of what it takes out
		c := &r.all[r.busy[at]]
		switch ready := r.fds[at].Revents; {
		case ready == 0:
			if now-max(c.due, c.used) > r.Timeout {
				r.fail(at, "no answer in time")
			}
		case c.connecting:
			c.connecting = false
			if err := c.socket.Err(); err != nil {
				r.fail(at, "connect: "+Cause(err))
				continue
			}
			r.push(at)
		case ready&unix.POLLOUT != 0:
			r.push(at)
		default:
			r.pull(at)
		}
	}
	return nil
}

// pull reads of the answer of busy[at] what is there.
func (r *run) pull(at int) {
	c := &r.all[r.busy[at]]
	n, err := read(int(c.socket), c.answer.space())
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		r.fds[at].Revents = 0
		return
	case err != nil:
		r.fail(at, "broken: "+Cause(err))
		return
	case n == 0 && c.answer.ended():
	case n == 0 && len(c.answer.buf) == 0:
		r.fail(at, "broken: closed without an answer")
		return
	case n == 0:
		r.fail(at, "broken: "+io.ErrUnexpectedEOF.Error())
		return
	default:
		r.fds[at].Revents = 0
		done, err := c.answer.add(n)
		if err != nil {
			r.fail(at, err.Error())
			return
		}
		if !done {
			return
		}
	}
	if why := r.src.Answered(c.kind, c.tag, &c.answer); why != "" {
		r.result.Errors[why]++
	}
	if c.answer.Close {
		c.socket.Close()
		c.socket = -1
	}
	r.finish(at)
}
