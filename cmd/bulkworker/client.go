package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
)

// Exit codes of the client commands, see docs/bulk-client.md.
const (
	codeNotGood     = 1 // refused, FAILED, CANCELLED, or lines were rejected
	codeUsage       = 2
	codeUnreachable = 3
	codeInterrupted = 130 // as in a shell after SIGINT
)

const (
	defaultServer = "http://127.0.0.1:8090"
	// briefly is the patience of interactive commands.
	briefly = 2 * time.Second
	// steadily is the patience of uploads, downloads and watching.
	steadily = 5 * time.Minute
)

// coded is an error with an exit code.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// ExitCode returns what the program ends with.
func (e *coded) ExitCode() int { return e.code }

func misuse(format string, args ...any) error { return &coded{codeUsage, fmt.Errorf(format, args...)} }

// clientCommands returns the commands that talk to a running bulk worker.
func clientCommands() []*cobra.Command {
	return []*cobra.Command{
		newSubmit(), newRelay(), newStatus(), newWatch(),
		newControl("pause", "Pause a group: no more of its jobs start, and running jobs go on", (*client.Client).Pause),
		newControl("resume", "Resume a group", (*client.Client).Resume),
		newControl("release", "Start jobs of a group that wait for the downstream", (*client.Client).Release),
		newControl("cancel", "Cancel a group: no more of its jobs start", (*client.Client).Cancel),
		newResults(), newJob(),
		newJobCommand("cancel-job GROUP JOB", "Cancel one job of a group", (*client.Client).CancelJob),
		newJobCommand("retry-job GROUP JOB", "Start a waiting job now, or run a failed or dead job again", (*client.Client).RetryJob),
		newRedrive(), newDelete(), newTenant(), newLimits(), newBreakers(), newWorkers(), newSchedules(),
	}
}

// connection has the flags that name the server and the token.
type connection struct {
	server, token, tokenFile string
	patience                 time.Duration
	compression              string
}

// newClientCommand returns a command with a connection's flags. Whatever run returns ends with its exit code.
func newClientCommand(conn *connection, use, short string, args cobra.PositionalArgs, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return misuse("%w: %s; see %s --help", err, cmd.UseLine(), cmd.CommandPath())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return withCode(run(cmd, args)) }
	f := cmd.Flags()
	f.StringVar(&conn.server, "server", "", "`URL` of the bulk worker (BULKWORKER_SERVER; "+defaultServer+")")
	f.StringVar(&conn.token, "token", "", "API `TOKEN` (BULKWORKER_TOKEN); other users of the machine can read the flag in the list of processes")
	f.StringVar(&conn.tokenFile, "token-file", "", "`FILE` with the API token")
	return cmd
}

// newReport returns a client command that prints what call returns: with write, or with --json as JSON.
func newReport[T any](use, short string, args cobra.PositionalArgs, call func(ctx context.Context, c *client.Client, cmd *cobra.Command, args []string) (T, error),
	write func(w io.Writer, v T) error,
) *cobra.Command {
	conn, asJSON := &connection{}, false
	cmd := newClientCommand(conn, use, short, args, func(cmd *cobra.Command, args []string) error {
		c, _, err := conn.clients(nil)
		if err != nil {
			return err
		}
		v, err := call(cmd.Context(), c, cmd, args)
		switch {
		case err != nil:
			return err
		case asJSON:
			return writeJSON(cmd.OutOrStdout(), v)
		}
		return write(cmd.OutOrStdout(), v)
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

// patient adds --retry-for, for commands that continue after an outage.
func (conn *connection) patient(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&conn.patience, "retry-for", steadily, "`TIME` to retry while the server is down, such as 30s; 0: no retries")
}

// compressed adds --compress, for commands that upload.
func (conn *connection) compressed(cmd *cobra.Command) {
	cmd.Flags().StringVar(&conn.compression, "compress", "none", "send jobs compressed, in this `CODING`: zstd, gzip or none")
}

// withCode adds to an error of package client the exit code for it.
func withCode(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*coded](err); ok {
		return err
	}
	if p, ok := errors.AsType[*client.Problem](err); client.Passing(err) && (!ok || p.Status != http.StatusTooManyRequests) {
		return &coded{codeUnreachable, err}
	}
	return &coded{codeNotGood, err}
}

// clients opens the connection twice: quick reports soon that the server is away, steady keeps trying. notice is called before
// steady tries again; nil: it is not.
func (conn *connection) clients(notice func(format string, args ...any)) (quick, steady *client.Client, err error) {
	o := client.Options{UserAgent: "bulkworker", Patience: briefly}
	if quick, err = conn.open(o); err != nil {
		return nil, nil, err
	}
	if o.Patience = conn.patience; o.Patience == 0 {
		o.Patience = -1
	}
	if notice != nil {
		o.OnRetry = func(err error, pause time.Duration) {
			notice("%v; trying again in %v", err, pause.Round(100*time.Millisecond))
		}
	}
	steady, err = conn.open(o)
	return quick, steady, err
}

// open returns a client of the flags' server, with the flags' token.
func (conn *connection) open(o client.Options) (*client.Client, error) {
	server, token := conn.server, conn.token
	if server == "" {
		if server = os.Getenv("BULKWORKER_SERVER"); server == "" {
			server = defaultServer
		}
	}
	switch {
	case token != "" && conn.tokenFile != "":
		return nil, misuse("--token and --token-file exclude each other")
	case conn.tokenFile != "":
		b, err := os.ReadFile(conn.tokenFile)
		if err != nil {
			return nil, misuse("--token-file: %w", err)
		}
		if token = strings.TrimSpace(string(b)); token == "" {
			return nil, misuse("--token-file %s is empty", conn.tokenFile)
		}
	case token == "":
		token = os.Getenv("BULKWORKER_TOKEN")
	}
	if o.Compression = client.Compression(conn.compression); o.Compression == "none" {
		o.Compression = ""
	}
	o.Token = token
	c, err := client.New(server, o)
	if err != nil {
		return nil, &coded{codeUsage, err}
	}
	return c, nil
}

// interruptible runs f, and ends its context on SIGINT or SIGTERM, so that it can report where it stopped. The second signal
// kills.
func interruptible(ctx context.Context, f func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return &coded{codeInterrupted, errors.New("interrupted")}
	}
	return err
}

// writeJSON writes indented JSON.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
