package sse

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"github.com/anteroom/anteroom/gateway/wire"
)

const (
	heartbeat    = 15 * time.Second // the longest time between two signs of life of a stream
	writeTimeout = 5 * time.Second  // the longest time for which a client may leave events unread
	stalledCheck = time.Second      // between two checks whether a client reads again

	// silentTimeout is the longest time without an acknowledgement from a client's machine. A stream counts as the presence of its
	// visitor, and the system by itself would try for a quarter of an hour to reach a machine that is gone.
	silentTimeout = time.Minute
)

// Source makes the events of one stream. Times are relative to one moment that all sources share. Calls never overlap.
type Source interface {
	// Due reports whether AppendEvents has something to send, or after how long to ask again. Due must not block.
	Due(now time.Duration) (due bool, next time.Duration)
	// AppendEvents appends the events that are due. next is the time until the next call of Due. more is false after the last event.
	AppendEvents(ctx context.Context, b []byte, now time.Duration) (_ []byte, next time.Duration, more bool)
}

// Stream is the event stream of one client. The loop owns it while it is in the wheel, a worker while it is ready; Streams.mu guards
// older and ended.
type Stream struct {
	source  Source
	conn    net.Conn
	ticket  [16]byte // of which streamsPerTicket may be open
	address [16]byte // of the client, as Reserve counts it

	beat    time.Duration // the latest time of the next sign of life
	next    time.Duration // until the next check
	stalled time.Duration // since when the client has not read; 0: the client reads
	older   *Stream       // of the same ticket
	ended   bool
}

// NewStream returns a stream for Start, for which Reserve has counted address.
func NewStream(source Source, ticket, address [16]byte) *Stream {
	return &Stream{source: source, ticket: ticket, address: address}
}

// Start turns the connection of a request into a stream. header is the header of the response without the blank line.
func (s *Streams) Start(ctx *fasthttp.RequestCtx, header []byte, st *Stream) {
	// If this process is killed, its clients reconnect at different times.
	header = appendRetry(append(header, "\r\n"...), 2*time.Second+random(8*time.Second))
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(c net.Conn) {
		st.conn = wire.TakeOver(c)
		setUserTimeout(wire.Socket(st.conn), silentTimeout)
		if st.write(header) != nil {
			s.end(st)
			return
		}
		s.add(st)
	})
}

// due reports whether a worker has to serve the stream. It never blocks.
func (st *Stream) due(now time.Duration) (due bool) {
	defer func() {
		if recover() != nil {
			due = true // the worker meets the same fault, and reports it
		}
	}()
	if now >= st.beat || st.stalled > 0 {
		return true
	}
	due, st.next = st.source.Due(now)
	return due
}

// buffers are for events.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

const comment = ":\n\n"

// step sends a client its events or a sign of life, and reports whether the stream goes on.
func (st *Stream) step(ctx context.Context, now time.Duration) (more bool) {
	if !writable(st.conn) { // the client misses events meanwhile, and is soon ended
		if st.stalled == 0 {
			st.stalled = now
		}
		st.next = stalledCheck
		return now < st.stalled+writeTimeout
	}
	st.stalled = 0
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	b, next, more := st.source.AppendEvents(ctx, (*buf)[:0], now)
	st.next = next
	if len(b) == 0 && more && now >= st.beat {
		b = append(b, comment...)
	}
	if len(b) > 0 {
		*buf = b
		st.beat = now + heartbeat - random(heartbeat/4) // spreads streams that were opened together
		if st.write(b) != nil {
			return false
		}
	}
	return more
}

func (st *Stream) write(b []byte) error {
	if err := st.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := st.conn.Write(b)
	return err
}

// farewell asks a client to reconnect after one second, or up to spread later. A client that does not read is not asked.
func (st *Stream) farewell(spread time.Duration) {
	if !writable(st.conn) {
		wire.Socket(st.conn).Close()
		return
	}
	_ = st.write(appendRetry(nil, time.Second+random(spread))) // the connection is closed next
}

func appendRetry(b []byte, after time.Duration) []byte {
	return append(strconv.AppendInt(append(b, "retry: "...), after.Milliseconds(), 10), "\n\n"...)
}

// random returns a duration below most.
func random(most time.Duration) time.Duration {
	return time.Duration(rand.Float64() * float64(most)) //nolint:gosec // spreads clients over time; nothing is kept safe by it
}

// writable reports whether a write to a connection would not block.
func writable(c net.Conn) bool {
	sc, ok := wire.Socket(c).(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true // the write will fail
	}
	full := false
	err = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
		full = n == 0 && err == nil
	})
	return err != nil || !full
}
