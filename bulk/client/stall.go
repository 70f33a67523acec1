package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// guard ends a request whose connection makes no progress. A fixed deadline would not fit streams of any length.
type guard struct {
	timer  *time.Timer
	after  time.Duration
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// stalled is the cause with which a guard ends its request.
type stalled struct{ after time.Duration }

func (s stalled) Error() string {
	return fmt.Sprintf("nothing moved on the connection for %v", s.after)
}

func newGuard(parent context.Context, after time.Duration) (context.Context, *guard) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, &guard{timer: time.AfterFunc(after, func() { cancel(stalled{after}) }), after: after, ctx: ctx, cancel: cancel}
}

func (g *guard) moved() { g.timer.Reset(g.after) }

// pause stops the clock until moved: the client waits for something other than the server.
func (g *guard) pause() { g.timer.Stop() }

func (g *guard) end() {
	g.timer.Stop()
	g.cancel(nil)
}

// explain replaces "context canceled" by the guard's own reason.
func (g *guard) explain(err error) error {
	if s, ok := errors.AsType[stalled](context.Cause(g.ctx)); ok {
		return s
	}
	return err
}

// guarded is the body of a request. Waiting for its source does not count as a stall.
type guarded struct {
	r     io.Reader
	guard *guard
}

func (b *guarded) Read(p []byte) (int, error) {
	b.guard.pause()
	n, err := b.r.Read(p)
	b.guard.moved()
	return n, err
}

// stream is the body of a response.
type stream struct {
	io.ReadCloser
	guard       *guard
	contentType string
	status      int
}

func (s *stream) Read(p []byte) (int, error) {
	s.guard.moved()
	n, err := s.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = s.guard.explain(err)
	}
	s.guard.pause() // the caller may take its time
	return n, err
}

func (s *stream) Close() error {
	s.guard.end()
	return s.ReadCloser.Close()
}
