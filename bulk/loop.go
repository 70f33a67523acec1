package bulk

import "context"

// loop is a goroutine that can be stopped.
type loop struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// begin starts a loop.
func begin(ctx context.Context, run func(context.Context)) *loop {
	ctx, cancel := context.WithCancel(ctx)
	l := &loop{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		run(ctx)
	}()
	return l
}

// stop ends the loop and waits for it.
func (l *loop) stop() {
	l.cancel()
	<-l.done
}
