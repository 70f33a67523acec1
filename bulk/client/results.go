package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/url"
	"strings"
)

// maxOutcome bounds a line of a download. It is far above the server's limits.result.
const maxOutcome = 32 << 20

// Which selects outcomes; empty fields select all.
type Which struct {
	Statuses []string // succeeded, failed, dead, cancelled
	Codes    []string // of the error
	Cursor   *string  // start after the outcome with this cursor, "" at the first; outcomes then have cursors
}

func (s Which) call(group string) call {
	k := resultsCall(group)
	k.query = url.Values{}
	if len(s.Statuses) > 0 {
		k.query.Set("status", strings.Join(s.Statuses, ","))
	}
	if len(s.Codes) > 0 {
		k.query.Set("code", strings.Join(s.Codes, ","))
	}
	if s.Cursor != nil {
		k.query.Set("cursor", *s.Cursor)
	}
	return k
}

// Select is Results for selected outcomes.
func (c jobs) Select(ctx context.Context, group string, which Which) iter.Seq2[*Outcome, error] {
	return c.outcomes(ctx, which.call(group))
}

// WriteSelected writes what Select returns as NDJSON. It returns the number of lines.
func (c jobs) WriteSelected(ctx context.Context, group string, which Which, w io.Writer) (int64, error) {
	return c.writeLines(ctx, which.call(group), w)
}

// Job returns one job of a group, in any state.
func (c jobs) Job(ctx context.Context, group, job string) (*JobState, error) {
	return fetch[JobState](ctx, c.connection, get("v1", "groups", group, "jobs", job), nil)
}

// CancelJob cancels one job of a group. A waiting job is cancelled immediately; a running one is asked to stop and is
// cancelled unless it succeeds first. A job that has ended otherwise is refused with wrong_state.
func (c jobs) CancelJob(ctx context.Context, group, job string) (*JobState, error) {
	return fetch[JobState](ctx, c.connection, post("v1", "groups", group, "jobs", job, "cancel"), nil)
}

// RetryJob starts a job now that waits for a retry or its run_at. A job that has failed or died is redriven:
// JobState.Group is the new group. Others are refused with wrong_state.
func (c jobs) RetryJob(ctx context.Context, group, job string) (*JobState, error) {
	var j JobState
	k, lost := post("v1", "groups", group, "jobs", job, "retry"), false
	err := c.retry(ctx, func() error {
		err := c.ask(ctx, k, &j)
		lost = lost || Passing(err)
		return err
	})
	if p, ok := errors.AsType[*Problem](err); ok && p.Code == "wrong_state" && lost {
		return c.retried(ctx, group, job, p) // the first attempt did it
	}
	if err != nil {
		return nil, err
	}
	return &j, nil
}

// retried returns a job after a retry whose response was lost. If it failed or died in its group, it is now in the
// group's newest redrive; instead is the error if it is not.
func (c jobs) retried(ctx context.Context, group, job string, instead error) (*JobState, error) {
	j, err := c.Job(ctx, group, job)
	if err != nil {
		return nil, err
	}
	j.Group = group
	if j.Status != "failed" && j.Status != "dead" {
		return j, nil
	}
	as, err := c.redriveOf(ctx, group, instead)
	if err != nil {
		return nil, err
	}
	j, err = c.Job(ctx, as.ID, job)
	if p, ok := errors.AsType[*Problem](err); ok && p.Code == "not_found" {
		return nil, instead
	}
	if err != nil {
		return nil, err
	}
	j.Group = as.ID
	return j, nil
}

// Results streams the recorded outcomes of a group's jobs in the order in which they ended, in constant memory. It
// continues after a broken connection and ends after an error.
func (c jobs) Results(ctx context.Context, group string) iter.Seq2[*Outcome, error] {
	return c.outcomes(ctx, resultsCall(group))
}

// Dead streams the dead jobs of a group with their payloads.
func (c jobs) Dead(ctx context.Context, group string) iter.Seq2[*Outcome, error] {
	return c.outcomes(ctx, deadCall(group))
}

// WriteResults writes the outcomes as the server's NDJSON. It returns the number of lines.
func (c jobs) WriteResults(ctx context.Context, group string, w io.Writer) (int64, error) {
	return c.writeLines(ctx, resultsCall(group), w)
}

// WriteDead writes the dead jobs as NDJSON. It returns the number of lines.
func (c jobs) WriteDead(ctx context.Context, group string, w io.Writer) (int64, error) {
	return c.writeLines(ctx, deadCall(group), w)
}

func resultsCall(group string) call {
	k := get("v1", "groups", group, "results")
	k.cursors = true
	return k
}

// findCursor returns the cursor of a line of results, which is its last field, and the position of that field.
func findCursor(line []byte) (at int, cursor string, ok bool) {
	const name = `,"cursor":"`
	at = bytes.LastIndex(line, []byte(name))
	text, ok := bytes.CutSuffix(bytes.TrimRight(line, "\r\n"), []byte(`"}`))
	if !ok || at < 0 || len(text) < at+len(name) || bytes.ContainsAny(text[at+len(name):], `"\`) {
		return 0, "", false
	}
	return at, string(text[at+len(name):]), true
}

func deadCall(group string) call {
	k := get("v1", "dead")
	k.query = url.Values{"group": {group}}
	return k
}

// Result returns the aggregate of an ended group, null if it has none. A group that has not ended is refused with
// wrong_state.
func (c jobs) Result(ctx context.Context, group string) (json.RawMessage, error) {
	var result json.RawMessage
	err := c.do(ctx, get("v1", "groups", group, "result"), &result)
	return result, err
}

func (c jobs) outcomes(ctx context.Context, k call) iter.Seq2[*Outcome, error] {
	return func(yield func(*Outcome, error) bool) {
		for line, err := range c.lines(ctx, k) {
			var o *Outcome
			if err == nil {
				o = new(Outcome)
				if err = json.Unmarshal(line, o); err != nil {
					o, err = nil, fmt.Errorf("%s: a line is not an outcome: %w", c.url(k), err)
				}
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

func (c jobs) writeLines(ctx context.Context, k call, w io.Writer) (n int64, err error) {
	b := bufio.NewWriterSize(w, 64<<10)
	for line, err := range c.lines(ctx, k) {
		if err != nil {
			return n, errors.Join(err, b.Flush())
		}
		if _, err := b.Write(line); err != nil {
			return n, err
		}
		n++
	}
	return n, b.Flush()
}

// lines yields the lines of an NDJSON response, each with its line end and valid until the next. After a broken
// connection it continues after the cursor of the last line or, without cursors, skips the lines it has read.
func (c jobs) lines(ctx context.Context, k call) iter.Seq2[[]byte, error] {
	k.accept = "application/x-ndjson"
	query, wanted := k.query, k.query.Has("cursor")
	return func(yield func([]byte, error) bool) {
		var read int64
		k := k
		if k.query = maps.Clone(query); k.cursors && !wanted {
			if k.query == nil {
				k.query = url.Values{}
			}
			k.query.Set("cursor", "")
		}
		stop := errors.New("enough")
		once := func(p *patience) error {
			body, err := c.try(ctx, k)
			if err != nil {
				return err
			}
			defer body.Close()
			lines := newLineReader(body, maxOutcome)
			var line []byte
			for n := int64(0); ; n++ {
				var err error
				switch line, _, err = lines.append(line[:0]); {
				case errors.Is(err, io.EOF):
					return nil
				case errors.Is(err, errLongLine):
					return fmt.Errorf("%s: line %d is longer than %d MiB", c.url(k), n+1, maxOutcome>>20)
				case err != nil:
					return c.unreachable(err)
				}
				if n < read || len(bytes.TrimSpace(line)) == 0 {
					continue
				}
				p.progress()
				if at, cursor, ok := findCursor(line); k.cursors && ok {
					k.query.Set("cursor", cursor)
					if !wanted {
						line = append(line[:at], "}\n"...)
					}
				} else {
					read++
				}
				if !yield(line, nil) {
					return stop
				}
			}
		}
		for p := c.newPatience(); ; {
			err := once(p)
			if err == nil || errors.Is(err, stop) {
				return
			}
			if err := p.wait(ctx, err); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}
