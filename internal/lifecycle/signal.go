package lifecycle

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilSignal returns a context that the first SIGTERM or SIGINT cancels. The second signal ends the process: when the context is
// done, the default handling of signals is restored.
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
