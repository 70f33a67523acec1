package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/bulk/client"
	"github.com/anteroom/anteroom/bulk/jobfile"
)

// submission holds the flags of submit.
type submission struct {
	conn                                                        connection
	spec                                                        client.GroupSpec
	priority, start, key, aggregate, tolerance, stopAt, results string
	startAt, expiresAt, when                                    string
	watch                                                       bool
	fileFormat
}

// fileFormat is how submit reads its file.
type fileFormat struct {
	format, delimiter string
	columns           map[string]string
}

func newSubmit() *cobra.Command {
	s := &submission{}
	cmd := newClientCommand(&s.conn, "submit --tenant TENANT --type TYPE FILE", "Send a file of jobs as a group", cobra.ExactArgs(1), s.run)
	cmd.Long = `submit sends the jobs of a file (- is the standard input), one JSON object a line:

  {"id": "a-1", "payload": {"to": "ann@example.com"}, "cost": 1, "run_at": "2026-01-02T15:04:05Z"}

Only payload is required. A file named .csv or .tsv has a header instead: columns id, type,
cost, run_at and payload (JSON) are those fields; without a column payload, the payload is
an object of the other columns, as texts. Files compressed with gzip or zstd are read too.

The group's id goes to stdout as soon as the group exists.
An upload continues after a broken connection. If submit itself was interrupted, run
the same command with --id and that id: it continues where it stopped, and no job is
lost or added twice. The same holds for a command with its own --idempotency-key.

Rejected lines are listed on stderr with number and reason; the other jobs run, and
the exit code is 1.`
	f := cmd.Flags()
	f.StringVar(&s.spec.Tenant, "tenant", "", "`TENANT` for whom the jobs run (required)")
	f.StringVar(&s.spec.Type, "type", "", "`TYPE` of jobs without a type of their own (required)")
	f.StringVar(&s.priority, "priority", "", "`LEVEL`: high, normal or low (normal)")
	f.Float64Var(&s.spec.Weight, "weight", 0, "share `W` among the tenant's groups, 0.01 to 100 (1)")
	f.Float64Var(&s.spec.Rate, "rate", 0, "start at most `N` of its jobs a second (as the limits allow)")
	f.Int64Var(&s.spec.Concurrency, "concurrency", 0, "run at most `N` of its jobs at once (as the workers allow)")
	f.StringVar(&s.aggregate, "aggregate", "", "how results are aggregated: a `WORD` such as count, or JSON (count)")
	f.StringVar(&s.spec.CallbackURL, "callback-url", "", "`URL` that is called when the group has ended")
	f.StringVar(&s.tolerance, "failure-tolerance", "", "how many jobs may fail or die before the group fails: `N`, or a share such as 5% (0)")
	f.IntVar(&s.spec.Split, "split", 0, "`N` parts on as many shards, so that one shard does not bound the group (1)")
	f.Int64Var(&s.spec.Expected, "expected", 0, "about `N` jobs will be submitted: above 50000 the group is split, without --split (unknown)")
	f.StringVar(&s.stopAt, "stop-at", "", "pause the group when this many jobs have failed or died: `N`, or a share such as 5% (never)")
	f.StringVar(&s.results, "results", "", "outcomes to keep: `WHICH` is all, failures (only of jobs that did not succeed) or none (all)")
	f.StringVar(&s.spec.ID, "id", "", "`ID` of the group (random)")
	f.StringVar(&s.key, "idempotency-key", "", "`KEY` from which, with the tenant, the group's id is derived: the same key is the same submission")
	f.StringVar(&s.start, "start", "", "`WHEN` jobs may start: early (during the upload) or sealed (after it) (early)")
	f.StringVar(&s.startAt, "start-at", "", "start no job before this `TIME`, such as 2026-01-02T15:04:05Z")
	f.StringVar(&s.expiresAt, "expires-at", "", "jobs that have not started by this `TIME` end as dead")
	f.StringSliceVar(&s.spec.After, "after", nil, "start when this `GROUP` has ended; repeatable")
	f.StringToStringVar(&s.spec.Labels, "label", nil, "find the group by this label: `KEY=VALUE`; repeatable")
	f.StringVar(&s.when, "when", "", "with --after: `CONDITION` is on_success (all have completed), on_failure or on_end (on_success)")
	f.BoolVar(&s.watch, "watch", false, "show the progress until the group has ended; exit code 1 unless it completes")
	f.StringVar(&s.format, "format", "", "`FORMAT` of the file: ndjson, csv or tsv (by its name; ndjson)")
	f.StringVar(&s.delimiter, "csv-delimiter", "", "`CHARACTER` between the cells of CSV (the most frequent of comma, semicolon and tab in the header)")
	f.StringToStringVar(&s.columns, "csv-column", nil, "take a field of the job from another column: `FIELD=COLUMN`, as id=customer; repeatable")
	s.conn.compressed(cmd)
	s.conn.patient(cmd)
	return cmd
}

// complete sets the spec from flags that are parsed here.
func (s *submission) complete() error {
	if s.spec.Tenant == "" {
		return misuse("--tenant is required: the tenant for whom the jobs run")
	}
	if s.spec.Type == "" {
		return misuse("--type is required: the type of jobs without a type of their own")
	}
	s.spec.Priority, s.spec.Start = client.Priority(s.priority), client.Start(s.start)
	switch s.spec.Priority {
	case "", client.High, client.Normal, client.Low:
	default:
		return misuse("--priority is %q; use high, normal or low", s.priority)
	}
	switch s.spec.Start {
	case "", client.Early, client.Sealed:
	default:
		return misuse("--start is %q; use early or sealed", s.start)
	}
	switch s.spec.Results = client.Results(s.results); s.spec.Results {
	case "", client.AllResults, client.FailureResults, client.NoResults:
	default:
		return misuse("--results is %q; use all, failures or none", s.results)
	}
	for name, value := range map[string]string{"--failure-tolerance": s.tolerance, "--stop-at": s.stopAt} {
		if t := strings.TrimSuffix(value, "%"); t != "" {
			if _, err := strconv.ParseFloat(t, 64); err != nil {
				return misuse("%s is %q; use a number such as 10, or a share such as 5%%", name, value)
			}
		}
	}
	for _, at := range []struct {
		flag, text string
		to         *time.Time
	}{{"--start-at", s.startAt, &s.spec.StartAt}, {"--expires-at", s.expiresAt, &s.spec.ExpiresAt}} {
		if at.text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339, at.text)
		if err != nil {
			return misuse("%s is %q; use a time with a zone such as 2026-01-02T15:04:05Z", at.flag, at.text)
		}
		*at.to = t
	}
	s.spec.When = client.When(s.when)
	s.spec.FailureTolerance, s.spec.StopAt = client.Tolerance(s.tolerance), client.Tolerance(s.stopAt)
	switch jobfile.Format(s.format) {
	case "", jobfile.NDJSON, jobfile.CSV, jobfile.TSV:
	default:
		return misuse("--format is %q; use ndjson, csv or tsv", s.format)
	}
	if d := []rune(s.delimiter); len(d) > 1 || len(d) == 1 && strings.ContainsRune("\"\r\n", d[0]) {
		return misuse("--csv-delimiter is %q; use one character, as ;", s.delimiter)
	}
	if s.aggregate != "" {
		s.spec.Aggregate = json.RawMessage(s.aggregate)
		if !json.Valid(s.spec.Aggregate) {
			s.spec.Aggregate = json.RawMessage(strconv.Quote(s.aggregate))
		}
	}
	if s.key != "" {
		if s.spec.ID != "" {
			return misuse("--id and --idempotency-key exclude each other")
		}
		sum := sha256.Sum256([]byte(s.spec.Tenant + "\x00" + s.key))
		s.spec.ID = "k-" + hex.EncodeToString(sum[:12])
	}
	return nil
}

func (s *submission) run(cmd *cobra.Command, args []string) error {
	if err := s.complete(); err != nil {
		return err
	}
	jobs, err := s.open(cmd, args[0])
	if err != nil {
		return misuse("%w", err)
	}
	defer jobs.close()
	screen := newScreen(cmd.ErrOrStderr())
	defer screen.end()
	quick, steady, err := s.conn.clients(screen.note)
	if err != nil {
		return err
	}
	group, err := quick.CreateGroup(cmd.Context(), s.spec)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), group.ID); err != nil {
		return err
	}
	shown := newUploading(screen, jobs.size, jobs.at)
	var sent client.Uploaded
	send := func(ctx context.Context) (err error) {
		// The upload's name is fixed, so that sending the file again to the same group continues.
		u := client.Upload{ID: "submit", OnChunk: shown.chunk, OnRejected: func(r client.Rejection) { screen.note("%s:%d: %s", args[0], jobs.line(r.Line), r.Reason) }}
		if jobs.records != nil {
			sent, err = steady.AddSource(ctx, group.ID, jobs.records, u)
		} else {
			sent, err = steady.AddLines(ctx, group.ID, jobs.content, u)
		}
		if err == nil {
			_, err = steady.Seal(ctx, group.ID)
		}
		return err
	}
	if args[0] == "-" { // reading stdin would not notice a signal
		err = send(cmd.Context())
	} else {
		err = interruptible(cmd.Context(), send)
	}
	if err != nil {
		if _, refused := errors.AsType[*client.Problem](err); !refused || client.Passing(err) {
			screen.note("%d lines were sent; the same command with --id %s continues from there", sent.Lines, group.ID)
		}
		return err
	}
	shown.end(sent)
	if s.watch {
		if err := watch(cmd.Context(), steady, screen, group.ID); err != nil {
			return err
		}
	}
	if sent.Rejected > 0 {
		return fmt.Errorf("%d of %d lines were rejected", sent.Rejected, sent.Lines)
	}
	return nil
}

// jobs is an open file of jobs.
type jobs struct {
	file       *os.File
	content    io.ReadCloser // decompressed
	compressed bool
	size       int64            // of the file; -1: unknown
	read       atomic.Int64     // bytes of the file
	records    *jobfile.Records // of CSV; nil: NDJSON
}

// open opens the file of jobs or standard input.
func (s *submission) open(cmd *cobra.Command, name string) (*jobs, error) {
	j := &jobs{size: -1}
	source := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		j.file, source = f, f
	}
	if err := s.begin(j, source, name); err != nil {
		j.close()
		return nil, err
	}
	return j, nil
}

func (s *submission) begin(j *jobs, source io.Reader, name string) (err error) {
	if f, ok := source.(*os.File); ok {
		info, err := f.Stat()
		switch {
		case err != nil:
			return err
		case info.IsDir():
			return errors.New(name + " is a directory; use a file of jobs")
		case info.Mode().IsRegular():
			j.size = info.Size()
		}
	}
	if j.content, j.compressed, err = jobfile.Decompress(counted{source, &j.read}, name); err != nil {
		return err
	}
	format := jobfile.Format(s.format)
	if format == "" {
		format = jobfile.FormatOf(name)
	}
	if format == jobfile.NDJSON {
		if s.delimiter != "" || len(s.columns) > 0 {
			return errors.New("--csv-delimiter and --csv-column are for CSV: name the file .csv, or set --format csv")
		}
		return nil
	}
	o := jobfile.Options{Columns: s.columns}
	if d := []rune(s.delimiter); len(d) > 0 {
		o.Delimiter = d[0]
	} else if format == jobfile.TSV {
		o.Delimiter = '\t'
	}
	if j.records, err = jobfile.NewRecords(j.content, o); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (j *jobs) close() {
	if j.content != nil {
		_ = j.content.Close() // only read
	}
	if j.file != nil {
		_ = j.file.Close() // only read
	}
}

// at returns how much of the file was sent. Of a compressed file that is what was read, which is a buffer more.
func (j *jobs) at(sent client.Uploaded) int64 {
	if j.compressed {
		return j.read.Load()
	}
	return sent.Bytes
}

// line returns the line of the file at which the nth job begins.
func (j *jobs) line(n int64) int64 {
	if j.records != nil {
		return j.records.Line(n)
	}
	return n
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}
