package admission

import (
	"context"
	"errors"
	"sync"
	"time"
)

// batchMost is how many requests one script call takes.
const batchMost = 500

// After a batch of at least batchBusy requests the next one is collected batchLonger times as long: under load fewer script
// calls carry the same requests.
const (
	batchBusy   = 8
	batchLonger = 3
)

var errUnanswered = errors.New("admission: a batch was not answered")

// batcher collects requests for wait, some milliseconds, into one call. The first request of a batch leads it: it waits, sends the
// batch, and wakes the others. A batcher has no goroutine of its own.
type batcher[Q, A any] struct {
	script string // that send runs
	wait   time.Duration
	send   func(ctx context.Context, q []Q) ([]A, error)

	mu   sync.Mutex
	open *batch[Q, A]
	last int // requests of the batch before
}

type batch[Q, A any] struct {
	questions []Q
	full      chan struct{} // closed when it holds batchMost
	done      chan struct{} // closed when answers or err is set
	sent      time.Time     // when the collection ended; set before done is closed
	answers   []A
	err       error
}

// BatchCall is a call of a script with the requests of a batch, as one of them saw it.
type BatchCall struct {
	Script      string
	Size        int       // requests in the batch
	Asked, Sent time.Time // when the request joined the batch, and when the batch was sent
	Err         error
}

// batchObserver is the key of the observer of a context.
type batchObserver struct{}

// ObserveBatches returns a context for calls of a Room. observe is called when a script has replied to such a call, in its goroutine; calls
// that need no script are not observed.
func ObserveBatches(ctx context.Context, observe func(BatchCall)) context.Context {
	return context.WithValue(ctx, batchObserver{}, observe)
}

// observeCall begins a call that is alone in its batch, and returns what ends it. Without an observer it does nothing.
func observeCall(ctx context.Context, script string) (end func(error)) {
	observe, ok := ctx.Value(batchObserver{}).(func(BatchCall))
	if !ok {
		return func(error) {}
	}
	began := time.Now()
	return func(err error) { observe(BatchCall{Script: script, Size: 1, Asked: began, Sent: began, Err: err}) }
}

// ask sends q with others and returns its reply. When ctx ends first, the request is sent all the same.
func (b *batcher[Q, A]) ask(ctx context.Context, q Q) (A, error) {
	observe, observed := ctx.Value(batchObserver{}).(func(BatchCall))
	var asked time.Time
	if observed {
		asked = time.Now()
	}
	b.mu.Lock()
	cur := b.open
	lead := cur == nil
	if lead {
		cur = &batch[Q, A]{full: make(chan struct{}), done: make(chan struct{})}
		b.open = cur
	}
	i := len(cur.questions)
	cur.questions = append(cur.questions, q)
	if len(cur.questions) == batchMost {
		b.open = nil
		close(cur.full)
	}
	b.mu.Unlock()

	if lead {
		b.lead(cur)
	} else {
		select {
		case <-cur.done:
		case <-ctx.Done():
			var none A
			return none, ctx.Err()
		}
	}
	if observed {
		observe(BatchCall{Script: b.script, Size: len(cur.questions), Asked: asked, Sent: cur.sent, Err: cur.err})
	}
	if cur.err != nil {
		var none A
		return none, cur.err
	}
	return cur.answers[i], nil
}

// patience returns how long a batch is collected.
func (b *batcher[Q, A]) patience() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last >= batchBusy {
		return b.wait * batchLonger
	}
	return b.wait
}

func (b *batcher[Q, A]) lead(cur *batch[Q, A]) {
	t := time.NewTimer(b.patience())
	select {
	case <-t.C:
	case <-cur.full:
		t.Stop()
	}
	b.mu.Lock()
	if b.open == cur {
		b.open = nil
	}
	b.last = len(cur.questions)
	b.mu.Unlock()
	cur.sent = time.Now()
	// If send panics, the other callers get this error instead of missing replies.
	cur.err = errUnanswered
	defer close(cur.done)
	// The leader's own client may go away; the other requests still need their replies.
	cur.answers, cur.err = b.send(context.Background(), cur.questions)
}
