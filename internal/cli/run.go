package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/config"
)

// Exit codes. An error with a method ExitCode() int sets its own.
const (
	ExitOK      = 0
	ExitFailure = 1 // a failure while running
	ExitUsage   = 2 // the command line or the configuration is wrong
)

// UsageError is a mistake in the command line.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ExitCode returns ExitUsage.
func (e *UsageError) ExitCode() int { return ExitUsage }

// Run runs a program's command tree and returns its exit code. Results go to stdout, everything else to stderr.
func Run(root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SilenceUsage = true
	root.SilenceErrors = true
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &UsageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return ExitOK
	}
	if problems, ok := errors.AsType[*config.Problems](err); ok {
		// One problem a line and nothing else, for people and for programs.
		_, _ = fmt.Fprintln(stderr, problems.Error())
		return ExitUsage
	}
	_, _ = fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err)
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return ExitFailure
}

// NewGroup returns a command that only has subcommands: without one of them it returns a usage error.
func NewGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &UsageError{fmt.Errorf("the command is missing; see %s --help", cmd.CommandPath())}
		},
	}
	group.AddCommand(commands...)
	return group
}

// Open opens the file of an argument; - is stdin.
func Open(name string, stdin io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(name)
}

// OneArg requires exactly one argument.
func OneArg(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return &UsageError{fmt.Errorf("got %d arguments; usage: %s", len(args), cmd.UseLine())}
}

// NoArgs refuses arguments and suggests the nearest command.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	message := fmt.Sprintf("unknown command or argument %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return &UsageError{fmt.Errorf("%s; see %s --help", message, cmd.CommandPath())}
}
