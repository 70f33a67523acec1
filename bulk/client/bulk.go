package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Bulk creates a group, adds the jobs of the NDJSON in body and seals it, in one streamed request. After a broken
// connection, it sends a body that can seek again from where it began. With any other body, or after an error, send
// the whole body again under the same spec.ID: accepted jobs are not added twice. (AddLines continues where it
// stopped instead.)
func (c uploads) Bulk(ctx context.Context, spec GroupSpec, body io.Reader) (*BulkAnswer, error) {
	if spec.ID == "" {
		spec.ID = spec.newID()
	}
	k := post("v1", "bulk")
	k.ndjson = true
	k.query = queryOf(spec)
	seeker, _ := body.(io.Seeker)
	var start int64
	if seeker != nil {
		var err error
		if start, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			seeker = nil // a pipe has the method but cannot seek
		}
	}
	farthest := int64(0)
	for p := c.newPatience(); ; {
		answer, read, err := c.bulk(ctx, k, body, seeker != nil)
		if err == nil {
			return answer, nil
		}
		if read > farthest {
			farthest = read
			p.progress()
		}
		if seeker == nil {
			return nil, fmt.Errorf("group %s: %w", spec.ID, err)
		}
		if err = p.wait(ctx, err); err != nil {
			return nil, fmt.Errorf("group %s: %w", spec.ID, err)
		}
		if _, err := seeker.Seek(start, io.SeekStart); err != nil {
			return nil, fmt.Errorf("group %s: seek to the beginning of the jobs: %w", spec.ID, err)
		}
	}
}

// bulk sends a body once and returns how many of its bytes were read.
func (c uploads) bulk(ctx context.Context, k call, body io.Reader, wait bool) (a *BulkAnswer, read int64, err error) {
	source := &source{r: body}
	answer, err := c.send(ctx, k, source)
	read = source.read.Load()
	if readErr := source.detach(wait); readErr != nil {
		err = fmt.Errorf("read the jobs: %w", readErr)
	}
	if answer != nil {
		defer answer.Close()
	}
	if err != nil {
		return nil, read, err
	}
	a = new(BulkAnswer)
	if err := json.NewDecoder(io.LimitReader(answer, maxAnswer)).Decode(a); err != nil {
		return nil, read, c.unreachable(err)
	}
	return a, read, nil
}

// source separates the caller's reader from the transport, which may read on after it has returned. It does not close
// the reader.
type source struct {
	r       io.Reader
	reading sync.Mutex
	read    atomic.Int64
	ended   atomic.Bool
	err     atomic.Pointer[error]
}

func (s *source) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.ended.Load() {
		return 0, io.ErrClosedPipe
	}
	n, err := s.r.Read(p)
	s.read.Add(int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		s.err.Store(&err)
	}
	return n, err
}

// detach ends reading and returns the reader's error, if it had one. With wait, no Read is under way when it returns;
// a reader that cannot seek may block for any length of time, so it is not waited for.
func (s *source) detach(wait bool) error {
	s.ended.Store(true)
	if wait {
		s.reading.Lock()
		defer s.reading.Unlock()
	}
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

// queryOf returns a spec as the parameters of a query.
func queryOf(s GroupSpec) url.Values {
	v := url.Values{}
	set := func(name, value string, zero bool) {
		if !zero {
			v.Set(name, value)
		}
	}
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	set("id", s.ID, s.ID == "")
	set("tenant", s.Tenant, s.Tenant == "")
	set("type", s.Type, s.Type == "")
	set("priority", string(s.Priority), s.Priority == "")
	set("weight", number(s.Weight), s.Weight == 0)
	set("base_priority", strconv.FormatInt(s.BasePriority, 10), s.BasePriority == 0)
	set("rate", number(s.Rate), s.Rate == 0)
	set("concurrency", strconv.FormatInt(s.Concurrency, 10), s.Concurrency == 0)
	set("aggregate", string(s.Aggregate), len(s.Aggregate) == 0)
	set("failure_tolerance", string(s.FailureTolerance), s.FailureTolerance == "")
	set("stop_at", string(s.StopAt), s.StopAt == "")
	set("results", string(s.Results), s.Results == "")
	set("callback_url", s.CallbackURL, s.CallbackURL == "")
	set("start", string(s.Start), s.Start == "")
	set("start_at", s.StartAt.Format(time.RFC3339Nano), s.StartAt.IsZero())
	if s.QuietHours != nil {
		hours, _ := json.Marshal(s.QuietHours) // cannot fail
		v.Set("quiet_hours", string(hours))
	}
	if len(s.After) > 0 {
		ids, _ := json.Marshal(s.After) // cannot fail
		v.Set("after", string(ids))
	}
	set("when", string(s.When), s.When == "")
	set("split", strconv.Itoa(s.Split), s.Split == 0)
	set("expected", strconv.FormatInt(s.Expected, 10), s.Expected == 0)
	if len(s.Labels) > 0 {
		labels, _ := json.Marshal(s.Labels) // cannot fail
		v.Set("labels", string(labels))
	}
	if s.Unique != nil {
		unique, _ := json.Marshal(s.Unique) // cannot fail
		v.Set("unique", string(unique))
	}
	set("expires_at", s.ExpiresAt.Format(time.RFC3339Nano), s.ExpiresAt.IsZero())
	return v
}
