package logs

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// queueSize is the most bytes that wait for a reader: about half a second of access log at full load.
const queueSize = 4 << 20

// Queue is a writer that never blocks: a log whose reader hangs must not stop the program. Lines that do not fit are dropped and
// counted, and the number is logged when the log is read again. Its methods are safe for concurrent use.
type Queue struct {
	out     io.Writer
	format  string // of the queue's own lines, as in New
	dropped atomic.Int64
	ended   chan struct{} // closed when all lines have been written

	mu         sync.Mutex
	work       sync.Cond
	pending    []byte
	unreported int64
	stopped    bool
}

// NewQueue returns a queue for out. It starts nothing; Run writes.
func NewQueue(format string, out io.Writer) *Queue {
	q := &Queue{out: out, format: format, ended: make(chan struct{})}
	q.work.L = &q.mu
	return q
}

// Logger returns a logger that writes to the queue, in its format, from a level on.
func (q *Queue) Logger(level string) *slog.Logger { return New(level, q.format, q) }

// Write takes whole lines. Its error is always nil.
func (q *Queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending)+len(p) > queueSize || q.stopped {
		n := int64(bytes.Count(p, []byte("\n")))
		q.unreported += n
		q.dropped.Add(n)
		return len(p), nil
	}
	q.pending = append(q.pending, p...)
	q.work.Signal()
	return len(p), nil
}

// Dropped returns the number of lines that were not written.
func (q *Queue) Dropped() int64 { return q.dropped.Load() }

// Run writes lines until Stop.
func (q *Queue) Run() {
	defer close(q.ended)
	var batch []byte
	for {
		q.mu.Lock()
		for len(q.pending) == 0 && !q.stopped {
			q.work.Wait()
		}
		if len(q.pending) == 0 {
			q.mu.Unlock()
			return
		}
		batch, q.pending = q.pending, batch[:0]
		lost := q.unreported
		q.unreported = 0
		q.mu.Unlock()
		if lost > 0 {
			report := bytes.NewBuffer(batch)
			New("warn", q.format, report).Warn("log lines were dropped: the log was not read in time", "lines", lost)
			batch = report.Bytes()
		}
		if n, err := q.out.Write(batch); err != nil { // the log cannot report its own failure
			q.dropped.Add(int64(bytes.Count(batch[n:], []byte("\n"))))
		}
		if cap(batch) > queueSize/4 {
			batch = nil
		}
	}
}

// Stop ends Run after the remaining lines, and waits for its end for at most the given time.
func (q *Queue) Stop(most time.Duration) {
	q.mu.Lock()
	q.stopped = true
	q.work.Signal()
	q.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-q.ended:
	case <-timer.C:
	}
}
