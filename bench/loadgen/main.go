// Command loadgen sends visitors to a gateway through its visitor API and judges the results.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/anteroom/anteroom/bench/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := load.Command().ExecuteContext(ctx)
	stop()
	switch {
	case errors.Is(err, load.ErrBroken):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(2)
	}
}
