package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// guard ends a request on whose connection nothing has moved for a while: no fixed deadline fits a stream of any length.
type guard struct {
	timer  *time.Timer
	after  time.Duration
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// stalled is why a guard ended its request.
type stalled struct{ after time.Duration }

func (s stalled) Error() string {
	return fmt.Sprintf("nothing moved on the connection for %v", s.after)
}

func newGuard(parent context.Context, after time.Duration) (context.Context, *guard) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, &guard{timer: time.AfterFunc(after, func() { cancel(stalled{after}) }), after: after, ctx: ctx, cancel: cancel}
}

func (g *guard) moved() { g.timer.Reset(g.after) }

// pause stops the clock until moved: what is awaited now is not the server.
func (g *guard) pause() { g.timer.Stop() }

func (g *guard) end() {
	g.timer.Stop()
	g.cancel(nil)
}

// explain puts the guard's own reason in the place of "context canceled".
func (g *guard) explain(err error) error {
	if s, ok := errors.AsType[stalled](context.Cause(g.ctx)); ok {
		return s
	}
	return err
}

// guarded is a request's body: while its source is slow, the connection is not to blame.
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

// stream is the body of an answer.
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
	s.guard.pause() // what follows is the reader's own time
	return n, err
}

func (s *stream) Close() error {
	s.guard.end()
	return s.ReadCloser.Close()
}
