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

// maxOutcome bounds a line of a download; limits.result of the server is far lower.
const maxOutcome = 32 << 20

// Which selects outcomes; what is empty selects all.
type Which struct {
	Statuses []string // succeeded, failed, dead, cancelled
	Codes    []string // of the error
	Cursor   *string  // begins behind the outcome with this cursor, "" at the first; every outcome has its own then
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

// Select is Results of those outcomes alone that are selected.
func (c *Client) Select(ctx context.Context, group string, which Which) iter.Seq2[*Outcome, error] {
	return c.outcomes(ctx, which.call(group))
}

// WriteSelected is Select as NDJSON. It returns the lines written.
func (c *Client) WriteSelected(ctx context.Context, group string, which Which, w io.Writer) (int64, error) {
	return c.writeLines(ctx, which.call(group), w)
}

// Job reads one job of a group, whether it waits, runs or has ended.
func (c *Client) Job(ctx context.Context, group, job string) (*JobState, error) {
	var j JobState
	if err := c.do(ctx, get("v1", "groups", group, "jobs", job), &j); err != nil {
		return nil, err
	}
	return &j, nil
}

// CancelJob ends one job of a group. One that waits is cancelled at once; one that runs is told to end, and is cancelled unless it succeeds
// first. A job that has ended in another way is refused with wrong_state.
func (c *Client) CancelJob(ctx context.Context, group, job string) (*JobState, error) {
	var j JobState
	if err := c.do(ctx, post("v1", "groups", group, "jobs", job, "cancel"), &j); err != nil {
		return nil, err
	}
	return &j, nil
}

// RetryJob lets a job start now that waits for its next try or its run_at. One that has failed or died is given to a redrive of its own, which
// JobState.Group names. Others are refused with wrong_state.
func (c *Client) RetryJob(ctx context.Context, group, job string) (*JobState, error) {
	var j JobState
	k, lost := post("v1", "groups", group, "jobs", job, "retry"), false
	err := c.retry(ctx, func() error {
		err := c.ask(ctx, k, &j)
		lost = lost || Passing(err)
		return err
	})
	if p, ok := errors.AsType[*Problem](err); ok && p.Code == "wrong_state" && lost {
		return c.retried(ctx, group, job, p) // it was done the first time
	}
	if err != nil {
		return nil, err
	}
	return &j, nil
}

// retried reads a job after a retry whose answer was lost: in the newest redrive of its group, if it has failed or died in the group itself.
// instead is the error where that redrive does not have it.
func (c *Client) retried(ctx context.Context, group, job string, instead error) (*JobState, error) {
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

// Results streams the outcomes of a group's jobs in the order in which they came, as far as they are there. It goes on where a
// connection broke, and takes constant memory. After an error it ends.
func (c *Client) Results(ctx context.Context, group string) iter.Seq2[*Outcome, error] {
	return c.outcomes(ctx, resultsCall(group))
}

// Dead streams the dead jobs of a group with their payloads.
func (c *Client) Dead(ctx context.Context, group string) iter.Seq2[*Outcome, error] {
	return c.outcomes(ctx, deadCall(group))
}

// WriteResults is Results as NDJSON, as the server writes it. It returns the lines written.
func (c *Client) WriteResults(ctx context.Context, group string, w io.Writer) (int64, error) {
	return c.writeLines(ctx, resultsCall(group), w)
}

// WriteDead is Dead as NDJSON.
func (c *Client) WriteDead(ctx context.Context, group string, w io.Writer) (int64, error) {
	return c.writeLines(ctx, deadCall(group), w)
}

func resultsCall(group string) call {
	k := get("v1", "groups", group, "results")
	k.cursors = true
	return k
}

// findCursor returns the cursor of a line of results, its last field, and where that field begins.
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

// Result reads the aggregate of a group that has ended, null where there is none; before, it is refused with wrong_state.
func (c *Client) Result(ctx context.Context, group string) (json.RawMessage, error) {
	var result json.RawMessage
	err := c.do(ctx, get("v1", "groups", group, "result"), &result)
	return result, err
}

func (c *Client) outcomes(ctx context.Context, k call) iter.Seq2[*Outcome, error] {
	return func(yield func(*Outcome, error) bool) {
		for line, err := range c.lines(ctx, k) {
			var o *Outcome
			if err == nil {
				o = new(Outcome)
				if err = json.Unmarshal(line, o); err != nil {
					o, err = nil, fmt.Errorf("%s: a line is not what a bulk worker says: %w", c.url(k), err)
				}
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

func (c *Client) writeLines(ctx context.Context, k call, w io.Writer) (n int64, err error) {
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

// lines reads the whole lines of an NDJSON answer, each with its line end and valid until the next. After a break the stream is
// opened again behind the cursor of the last line or, where lines have none, what was read is skipped.
func (c *Client) lines(ctx context.Context, k call) iter.Seq2[[]byte, error] {
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
