package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
	"github.com/anteroom/anteroom/bulk/relay"
	"github.com/anteroom/anteroom/internal/cli"
	"github.com/anteroom/anteroom/internal/lifecycle"
	"github.com/anteroom/anteroom/internal/logs"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// relaying holds the flags of relay.
type relaying struct {
	conn                    connection
	from, fromFile          string
	table, printed          string
	once                    bool
	batch                   int
	interval                time.Duration
	listen, level, logStyle string
}

func newRelay() *cobra.Command {
	s := &relaying{}
	cmd := newClientCommand(&s.conn, "relay --from URL", "Move the rows of an outbox table into groups, each once", cobra.NoArgs, s.run)
	cmd.Long = `relay moves the rows of an outbox table in PostgreSQL, MariaDB or MySQL into groups. An
application inserts the rows in its own transactions: a job is submitted if and only if
its transaction commits. relay deletes a row when the server has its job. It may be
killed at any time, and several may work on one table.

--print-table prints the table. A row that can never be accepted stays in it with an error.
The URL is postgres://user:password@host/database or mysql://user:password@host/database;
other users can read a command line, so prefer --from-file or BULKWORKER_FROM for it.`
	f := cmd.Flags()
	f.StringVar(&s.from, "from", "", "`URL` of the database (BULKWORKER_FROM)")
	f.StringVar(&s.fromFile, "from-file", "", "`FILE` with the URL of the database")
	f.StringVar(&s.table, "table", "outbox", "`NAME` of the table")
	f.StringVar(&s.printed, "print-table", "", "print the statement that creates the table in `DATABASE`: postgres, mysql or mariadb")
	f.BoolVar(&s.once, "once", false, "end when no row is left that can be sent, for cron; exit code 1 if rows were set aside or have to wait")
	f.IntVar(&s.batch, "batch", 500, "send at most `N` rows at once, 1 to 1000")
	f.DurationVar(&s.interval, "interval", time.Second, "longest `TIME` between two looks at an empty table")
	f.StringVar(&s.listen, "listen", "", "`ADDR` of /metrics and /healthz, such as 127.0.0.1:8091 (none)")
	f.StringVar(&s.level, "log-level", "info", "least severe `LEVEL` that is logged: debug, info, warn or error")
	f.StringVar(&s.logStyle, "log-format", "json", "`FORMAT` of the log: json or text")
	s.conn.compressed(cmd)
	s.conn.patient(cmd)
	cmd.Flag("retry-for").Usage = "with --once: `TIME` to retry while the database or the server is down; 0: no retries"
	return cmd
}

// check returns what is wrong with the flags.
func (s *relaying) check() error {
	switch {
	case s.batch < 1 || s.batch > client.MaxBatch:
		return misuse("--batch is %d; use 1 to %d", s.batch, client.MaxBatch)
	case s.interval < 20*time.Millisecond:
		return misuse("--interval is %v; use 20ms or more", s.interval)
	case s.logStyle != "json" && s.logStyle != "text":
		return misuse("--log-format is %q; use json or text", s.logStyle)
	case s.from != "" && s.fromFile != "":
		return misuse("--from and --from-file exclude each other")
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.level)); err != nil {
		return misuse("--log-level is %q; use debug, info, warn or error", s.level)
	}
	return nil
}

// source returns the database's URL.
func (s *relaying) source() (string, error) {
	switch {
	case s.from != "":
		return s.from, nil
	case s.fromFile != "":
		b, err := os.ReadFile(s.fromFile)
		if err != nil {
			return "", misuse("--from-file: %w", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	if from := os.Getenv("BULKWORKER_FROM"); from != "" {
		return from, nil
	}
	return "", misuse("--from, --from-file or BULKWORKER_FROM is required: the URL of the database, as postgres://user:password@host/database")
}

func (s *relaying) run(cmd *cobra.Command, _ []string) error {
	if s.printed != "" {
		text, err := relay.Table(s.printed, s.table)
		if err != nil {
			return misuse("--print-table: %w", err)
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	from, err := s.source()
	if err != nil {
		return err
	}
	db, err := relay.Open(from, s.table)
	if err != nil {
		return misuse("%w", err)
	}
	defer func() { _ = db.Close() }() // nothing is written
	c, err := s.conn.open(client.Options{UserAgent: "bulkworker relay", Patience: -1})
	if err != nil {
		return err
	}
	// The reader of the log may end and return; that must not end the process.
	signal.Ignore(syscall.SIGPIPE)
	log := logs.New(s.level, s.logStyle, cmd.ErrOrStderr())
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r := relay.New(relay.Options{
		Database: db, Client: c, Batch: s.batch, Interval: s.interval, Once: s.once, Patience: s.conn.patience,
		Metrics: relay.NewMetrics(registry), Log: log,
	})
	ctx, stop := lifecycle.UntilSignal(cmd.Context())
	defer stop()
	var parts lifecycle.Group
	parts.AddUntilDone(ctx)
	working, end := context.WithCancel(ctx)
	parts.Add(func() error { return r.Run(working) }, end)
	if s.listen != "" {
		ln, err := net.Listen("tcp", s.listen)
		if err != nil {
			return cli.CannotListen("--listen", s.listen, err)
		}
		addProbes(&parts, ln, ophttp.Metrics(registry, log), log)
	}
	log.Info("relaying", "table", s.table, "once", s.once)
	return relayCode(parts.Run())
}

// relayCode adds to an error of a relay its exit code: an outage of the database is one of the server's.
func relayCode(err error) error {
	_, left := errors.AsType[*relay.Left](err)
	_, unsuitable := errors.AsType[*relay.Unsuitable](err)
	_, refused := errors.AsType[*client.Problem](err)
	if err == nil || left || unsuitable || refused {
		return err
	}
	return &coded{codeUnreachable, err}
}

// addProbes serves the metrics and the probes of a relay.
func addProbes(parts *lifecycle.Group, ln net.Listener, metrics http.Handler, log *slog.Logger) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	ok := func(w http.ResponseWriter, _ *http.Request) {
		ophttp.Write(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
	}
	mux.HandleFunc("GET /healthz", ok)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 75 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	parts.Add(func() error {
		log.Info("listening", "addr", ln.Addr().String())
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, func() { _ = server.Close() })
}
