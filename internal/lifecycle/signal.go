package lifecycle

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilSignal returns a context that the first SIGTERM or SIGINT ends. The second one ends the process at once: by the time that
// the context is seen to have ended, signals are the system's again.
func UntilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, stop = context.WithCancel(parent)
	came := make(chan os.Signal, 2)
	signal.Notify(came, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		defer stop()
		select {
		case <-ctx.Done():
			signal.Stop(came)
			return
		case <-came:
		}
		signal.Stop(came)
		select {
		case s := <-came: // the second, before Stop
			if s, ok := s.(syscall.Signal); ok {
				_ = syscall.Kill(os.Getpid(), s)
			}
		default:
		}
	}()
	return ctx, stop
}
