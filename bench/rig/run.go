package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/sleep"
)

// Run is one run of a command. Its context ends when the command is interrupted.
type Run struct {
	context.Context
	Out     io.Writer // for results
	Dir     string    // a temporary directory
	started int
	cleanup []func()
}

// failure carries an error from Check to Do.
type failure struct{ error }

// Check ends the run if there is an error.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Must returns a value, or ends the run if there is an error.
func Must[T any](value T, err error) T {
	Check(err)
	return value
}

// Require ends the run with a message unless a condition holds.
func Require(ok bool, format string, args ...any) {
	if !ok {
		Check(fmt.Errorf(format, args...))
	}
}

// Say prints a line of progress on stderr.
func Say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Try calls f and returns the error that Check ended it with.
func Try(f func()) (err error) {
	defer func() {
		p := recover()
		if f, ok := p.(failure); ok {
			err = f.error
		} else if p != nil {
			panic(p)
		}
	}()
	f()
	return nil
}

// Do calls f with a run, stops what f started in reverse order, and returns the error that ended the run.
func Do(ctx context.Context, out io.Writer, f func(*Run)) (err error) {
	r := &Run{Context: ctx, Out: out}
	if r.Dir, err = os.MkdirTemp("", "anteroom-bench-"); err != nil {
		return err
	}
	defer func() {
		for _, clean := range slices.Backward(r.cleanup) {
			clean()
		}
		err = errors.Join(err, os.RemoveAll(r.Dir))
	}()
	if err := os.Chmod(r.Dir, 0o755); err != nil { // the workers of a master that runs as root do not
		return err
	}
	return cmp.Or(Try(func() { f(r) }), ctx.Err())
}

// Command returns a command that calls f with a run.
func Command(name, short, long string, f func(*Run)) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Long: long, Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return Do(cmd.Context(), cmd.OutOrStdout(), f) },
	}
}

// Main executes a command until it ends or is interrupted, and exits with 1 on an error.
func Main(cmd *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		os.Exit(1)
	}
}

// Cleanup calls f at the end of the run. Functions are called in reverse order.
func (r *Run) Cleanup(f func()) { r.cleanup = append(r.cleanup, f) }

// Sleep waits for d, and reports whether d passed before ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool { return sleep.For(ctx, d) }

// Wait waits for d, and ends the run if it is interrupted before.
func (r *Run) Wait(d time.Duration) {
	if !Sleep(r, d) {
		Check(r.Err())
	}
}

// File writes a file in the temporary directory and returns its path.
func (r *Run) File(name, text string) string {
	path := filepath.Join(r.Dir, name)
	Check(os.WriteFile(path, []byte(text), 0o600))
	return path
}
