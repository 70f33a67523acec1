// Package sse keeps event streams open: it watches their sources, sends events and signs of life, and ends streams. A stream
// without events costs a socket and an entry in a timer wheel, and no goroutine. One loop checks the streams that are due without
// system calls; a few workers send, and never wait for a client.
package sse

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	streamWorkers    = 128                    // streams that are served at the same time
	streamsPerTicket = 4                      // one more ends the oldest
	wheelStep        = 250 * time.Millisecond // between two turns of the wheel
	wheelSlots       = 64                     // 16 s, more than the longest interval of a stream
)

// NextCheck is the shortest time between two checks of a stream.
const NextCheck = wheelStep

var (
	// ErrFull is returned when the limit of all streams, or of one client address, is reached.
	ErrFull = errors.New("sse: too many event streams")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("sse: no more event streams")
)

// Observer is notified of what metrics and logs record.
type Observer interface {
	StreamsOpen(n int)               // the number of streams changed
	StreamRefused()                  // because of ErrFull
	StreamFault(s Source, fault any) // a panic in s; its stream is ended
}

// Streams are the open event streams of a program.
type Streams struct {
	life     context.Context // of the calls of sources
	changed  func() bool     // asked each turn: every source may have an event; nil: never
	observer Observer
	limit    int
	start    time.Time

	mu      sync.Mutex
	wheel   [wheelSlots][]*Stream
	slot    int       // the next slot of the wheel
	ready   []*Stream // that workers serve next, in this order
	workers int       // that run
	counts  counts
	closed  bool
	wake    chan struct{}
	work    sync.WaitGroup
}

// counts hold the streams of each ticket and client address.
type counts struct {
	all        int // with those that are being opened
	byAddress  map[[16]byte]int
	perAddress int                  // the limit of one address; 0: none
	newest     map[[16]byte]*Stream // of each ticket
}

// New returns streams, at most limit at once; 0: as many as the file descriptors allow, at most 50000. Sources are called with life.
func New(life context.Context, limit int, observer Observer) *Streams {
	if limit <= 0 {
		limit = defaultLimit()
	}
	return &Streams{
		life: life, observer: observer, limit: limit, start: time.Now(), wake: make(chan struct{}, 1),
		counts: counts{newest: map[[16]byte]*Stream{}, byAddress: map[[16]byte]int{}},
	}
}

// Watch has every source asked whether it has an event when changed, which each turn of the wheel calls, reports true. It must be called
// before Run.
func (s *Streams) Watch(changed func() bool) { s.changed = changed }

// Limit returns the highest number of streams.
func (s *Streams) Limit() int { return s.limit }

// highestLimit is the default limit where descriptors suffice. So many streams use about 60 MB of this program and 250 MB of the system.
const highestLimit = 50_000

// defaultLimit returns 15/16 of the file descriptors, at most highestLimit.
func defaultLimit() int {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil {
		return highestLimit
	}
	return int(min(highestLimit, files.Cur-files.Cur/16))
}

func (s *Streams) now() time.Duration { return time.Since(s.start) }

// LimitEach sets the highest number of streams of one client address; 0: no limit. Open streams stay.
func (s *Streams) LimitEach(most int) {
	s.mu.Lock()
	s.counts.perAddress = most
	s.mu.Unlock()
}

// Reserve counts a stream of a client address that Start will open. The error is ErrFull or ErrClosed.
func (s *Streams) Reserve(address [16]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.counts.all >= s.limit, s.counts.perAddress > 0 && s.counts.byAddress[address] >= s.counts.perAddress:
		s.observer.StreamRefused()
		return ErrFull
	}
	s.counts.all++
	s.counts.byAddress[address]++
	s.observer.StreamsOpen(s.counts.all)
	return nil
}

// add opens a reserved stream and has its first events sent. A client that reconnects may have left a dead connection that nobody
// has noticed. So the stream that exceeds streamsPerTicket ends the oldest; a client that is still there is asked to wait before it
// reconnects.
func (s *Streams) add(st *Stream) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.end(st)
		return
	}
	st.older, s.counts.newest[st.ticket] = s.counts.newest[st.ticket], st
	var oldest *Stream
	n := 1
	for at := st.older; at != nil; at = at.older {
		oldest = at
		n++
	}
	s.mu.Unlock()
	if n > streamsPerTicket {
		oldest.farewell(30 * time.Second)
		s.end(oldest)
	}
	s.schedule(st)
}

// schedule has workers serve streams.
func (s *Streams) schedule(list ...*Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // Close has ended them
	}
	s.ready = append(s.ready, list...)
	for n := min(len(s.ready), streamWorkers) - s.workers; n > 0; n-- {
		s.workers++
		s.work.Go(s.worker)
	}
}

// later puts a stream into the wheel and wakes the loop.
func (s *Streams) later(st *Stream, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(st, after)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// put puts a stream into the wheel; mu is held.
func (s *Streams) put(st *Stream, after time.Duration) {
	steps := min(max(int(after/wheelStep), 0), wheelSlots-2)
	slot := &s.wheel[(s.slot+steps)%wheelSlots]
	*slot = append(*slot, st)
}

// end ends a stream, once. It closes the connection without mu, because closing may block.
func (s *Streams) end(st *Stream) {
	s.mu.Lock()
	ended := st.ended
	st.ended = true
	if !ended {
		s.forget(st)
	}
	s.mu.Unlock()
	if !ended {
		st.conn.Close()
	}
}

// forget removes a stream from the counts; mu is held.
func (s *Streams) forget(st *Stream) {
	switch at := s.counts.newest[st.ticket]; {
	case at == st && st.older == nil:
		delete(s.counts.newest, st.ticket)
	case at == st:
		s.counts.newest[st.ticket] = st.older
	default:
		for at != nil && at.older != st {
			at = at.older
		}
		if at != nil { // nil: it was never opened
			at.older = st.older
		}
	}
	s.counts.all--
	if s.counts.byAddress[st.address]--; s.counts.byAddress[st.address] <= 0 {
		delete(s.counts.byAddress, st.address)
	}
	s.observer.StreamsOpen(s.counts.all)
}

// Run turns the wheel until ctx ends, and then ends all streams.
func (s *Streams) Run(ctx context.Context) {
	defer s.work.Wait()
	defer s.Close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for next := s.now(); ; {
		if s.idle() {
			select {
			case <-s.wake:
			case <-ctx.Done():
				return
			}
			next = s.now()
		}
		next += wheelStep
		timer.Reset(next - s.now())
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		s.turn()
	}
}

func (s *Streams) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.wheel {
		if len(s.wheel[i]) > 0 {
			return false
		}
	}
	return true
}

// turn checks the streams of one slot, or of all.
func (s *Streams) turn() {
	all := s.changed != nil && s.changed()
	s.mu.Lock()
	slot := s.slot
	due := s.wheel[slot]
	if all {
		for i := range s.wheel {
			if i != slot {
				due = append(due, s.wheel[i]...)
				clear(s.wheel[i])
				s.wheel[i] = s.wheel[i][:0]
			}
		}
	}
	s.slot = (s.slot + 1) % wheelSlots
	s.mu.Unlock()
	now := s.now()
	var ready []*Stream
	for i, st := range due {
		if st.due(now) {
			ready = append(ready, st)
			due[i] = nil
		}
	}
	s.mu.Lock()
	for _, st := range due {
		if st != nil && !st.ended {
			s.put(st, st.next)
		}
	}
	clear(due)
	s.wheel[slot] = due[:0] // put has added nothing to this slot, which is a whole turn away
	s.mu.Unlock()
	if len(ready) > 0 {
		s.schedule(ready...)
	}
}

// worker serves streams until none is ready.
func (s *Streams) worker() {
	for {
		s.mu.Lock()
		if len(s.ready) == 0 || s.closed {
			s.ready = nil
			s.workers--
			s.mu.Unlock()
			return
		}
		st := s.ready[0]
		s.ready = s.ready[1:]
		ended := st.ended
		s.mu.Unlock()
		if !ended {
			s.serve(st)
		}
	}
}

// serve sends a stream's events and puts it back into the wheel, or ends it. A panic ends the stream, not the process.
func (s *Streams) serve(st *Stream) {
	more := false
	defer func() {
		if fault := recover(); fault != nil {
			s.observer.StreamFault(st.source, fault)
		}
		if more {
			s.later(st, st.next)
		} else {
			s.end(st)
		}
	}()
	more = st.step(s.life, s.now())
}

// Close ends all streams and refuses new ones. Clients are asked to reconnect spread over a time that grows with their number,
// because the remaining gateways receive all of them.
func (s *Streams) Close() {
	s.mu.Lock()
	s.closed = true
	var all []*Stream
	for _, st := range s.counts.newest {
		for ; st != nil; st = st.older {
			all = append(all, st)
		}
	}
	s.wheel = [wheelSlots][]*Stream{}
	s.mu.Unlock()
	spread := min(time.Second+time.Duration(len(all))*time.Second/reconnectsPerSecond, longestReconnect)
	slots := make(chan struct{}, streamWorkers)
	var ends sync.WaitGroup
	for _, st := range all { // in parallel, because each may block
		slots <- struct{}{}
		ends.Go(func() {
			defer func() { <-slots }()
			st.farewell(spread)
			s.end(st)
		})
	}
	ends.Wait()
}

const (
	reconnectsPerSecond = 1500
	longestReconnect    = 20 * time.Second // the shortest presence hold; a visitor who returns later is passed over meanwhile, and keeps the place
)
