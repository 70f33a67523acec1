package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/anteroom/anteroom/internal/config"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // something broke
	exitUsage   = 2 // the command line or the configuration is wrong
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

func run(args, environ []string, stdout, stderr io.Writer) int {
	root := newRoot(environ)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	var problems *config.Problems
	if errors.As(err, &problems) {
		// One problem a line and nothing else, for people and for programs.
		_, _ = fmt.Fprintln(stderr, problems.Error())
		return exitUsage
	}
	_, _ = fmt.Fprintln(stderr, "gateway:", err)
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailure
}

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }
