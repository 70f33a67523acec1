package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bench/child"
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

// Do calls f with a run, stops what f started in reverse order, and returns the error that ended the run.
func Do(ctx context.Context, out io.Writer, f func(*Run)) (err error) {
	dir, err := os.MkdirTemp("", "anteroom-bench-")
	if err != nil {
		return err
	}
	r := &Run{Context: ctx, Out: out, Dir: dir}
	defer func() {
		p := recover()
		if f, ok := p.(failure); ok {
			err, p = f.error, nil
		}
		for i := len(r.cleanup) - 1; i >= 0; i-- {
			r.cleanup[i]()
		}
		err = errors.Join(err, os.RemoveAll(dir))
		if p != nil {
			panic(p)
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil { // the workers of a master that runs as root do not
		return err
	}
	f(r)
	return ctx.Err()
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

// Sleep returns whether d passed before the run was interrupted.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

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

// Port returns a free loopback address.
func (r *Run) Port() string { return Must(child.FreePort()) }

// Start starts a server, waits until it listens on addr, and stops it at the end of the run.
func (r *Run) Start(name, bin, addr string, args ...string) *child.Child {
	c := Must(child.Start(name, bin, args...))
	r.Cleanup(c.Stop)
	Check(c.Ready(r, addr))
	return c
}

// Program returns a command that runs until it exits or ctx ends, and then is stopped by SIGTERM.
func Program(ctx context.Context, bin string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	return cmd
}

// Report runs a program and decodes the JSON that it prints. Its exit status is ignored: 1 means that the report names a
// promise that was broken.
func Report(ctx context.Context, into any, bin string, args ...string) error {
	out, err := Program(ctx, bin, args...).Output()
	if jsonErr := json.Unmarshal(out, into); jsonErr != nil {
		return fmt.Errorf("%s %s: %w", bin, strings.Join(args, " "), errors.Join(err, jsonErr))
	}
	return nil
}
