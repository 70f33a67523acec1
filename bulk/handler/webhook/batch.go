package webhook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
	"github.com/anteroom/anteroom/internal/tracing"
)

var _ bulk.BatchHandler = (*Handler)(nil)

// batchJob is a job in the body of a batch.
type batchJob struct {
	ID             string          `json:"id"`
	Attempt        int64           `json:"attempt"`
	Fence          int64           `json:"fence"`
	IdempotencyKey string          `json:"idempotency_key"`
	Payload        json.RawMessage `json:"payload"`
}

// verdict is an element of the response to a batch.
type verdict struct {
	ID         string          `json:"id"`
	Verdict    string          `json:"verdict"`
	Result     json.RawMessage `json:"result"`
	Code       string          `json:"code"`
	Error      string          `json:"error"`
	RetryAfter float64         `json:"retry_after"` // seconds
	Down       bool            `json:"down"`
}

// mostBatchAnswer bounds the response to a batch.
const mostBatchAnswer = 8 << 20

// HandleBatch posts jobs of one group in one request and reads a verdict for each, see docs/handlers.md.
func (h *Handler) HandleBatch(ctx context.Context, jobs []*bulk.Job) []bulk.BatchResult {
	ctx, cancel := context.WithTimeout(ctx, h.o.Timeout)
	defer cancel()
	answer, err := h.postBatch(ctx, jobs)
	if err == nil && (answer.Status < 200 || answer.Status > 299) {
		_, err = h.read(answer)
	}
	if err != nil {
		return each(jobs, err)
	}
	return h.verdicts(answer, jobs)
}

// each returns an error for each job.
func each(jobs []*bulk.Job, err error) []bulk.BatchResult {
	results := make([]bulk.BatchResult, len(jobs))
	for i := range results {
		results[i].Err = err
	}
	return results
}

func (h *Handler) postBatch(ctx context.Context, jobs []*bulk.Job) (*outbound.Answer, error) {
	body := make([]batchJob, len(jobs))
	key := sha256.New()
	for i, j := range jobs {
		body[i] = batchJob{ID: j.ID, Attempt: j.Attempt, Fence: j.Fence, IdempotencyKey: j.IdempotencyKey, Payload: j.Payload}
		_, _ = io.WriteString(key, j.IdempotencyKey+"\n")
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, bulk.Permanent("bad_payload", err)
	}
	header := h.header.Clone()
	header.Set("X-Bulk-Group", jobs[0].Group)
	header.Set("X-Bulk-Tenant", jobs[0].Tenant)
	header.Set("X-Bulk-Batch", strconv.Itoa(len(jobs)))
	header.Set("Idempotency-Key", "batch-"+hex.EncodeToString(key.Sum(nil)))
	end := tracing.Call(ctx, h.host, header)
	answer, err := outbound.Post(ctx, h.client, outbound.Request{
		URL: h.o.URL, Header: header, Body: text, Secret: h.o.Secret, MaxAnswer: min(mostBatchAnswer, int64(len(jobs))*int64(h.o.MaxResult+1024)),
	})
	status := 0
	if err == nil {
		status = answer.Status
	}
	end(status, err)
	return answer, h.unanswered(ctx, err)
}

// verdicts returns the results in a response of 2xx.
func (h *Handler) verdicts(a *outbound.Answer, jobs []*bulk.Job) []bulk.BatchResult {
	var list []json.RawMessage
	if err := json.Unmarshal(a.Body, &list); err != nil || a.TooLarge || list == nil {
		why := "is no JSON list of verdicts" + excerpt(a.Body)
		if a.TooLarge {
			why = fmt.Sprintf("is longer than %d bytes", len(a.Body))
		}
		return each(jobs, bulk.Fail("bad_verdict", fmt.Errorf("%s responded with %d, and the response %s", h.host, a.Status, why)))
	}
	found := make(map[string]bulk.BatchResult, len(list))
	for _, raw := range list {
		var v verdict
		err := json.Unmarshal(raw, &v)
		if _, twice := found[v.ID]; twice {
			found[v.ID] = h.badVerdict("is given twice")
			continue
		}
		if err != nil {
			found[v.ID] = h.badVerdict("cannot be read: " + err.Error())
			continue
		}
		found[v.ID] = h.result(&v)
	}
	results := make([]bulk.BatchResult, len(jobs))
	for i, j := range jobs {
		r, there := found[j.ID]
		if !there {
			r.Err = bulk.Fail("no_verdict", fmt.Errorf("%s responded with %d and %d verdicts, none of them for this job", h.host, a.Status, len(list)))
		}
		results[i] = r
	}
	return results
}

func (h *Handler) badVerdict(why string) bulk.BatchResult {
	return bulk.BatchResult{Err: bulk.Fail("bad_verdict", fmt.Errorf("the verdict of %s for this job %s", h.host, why))}
}

// result returns the result of a verdict.
func (h *Handler) result(v *verdict) bulk.BatchResult {
	code, after := v.Code, time.Duration(min(max(0, v.RetryAfter), bulk.MaxAfter.Seconds())*float64(time.Second))
	code = cmp.Or(code, "error")
	text := cmp.Or(strings.TrimSpace(v.Error), "no reason given")
	cause := fmt.Errorf("%s: %s", h.host, text)
	var err error
	switch v.Verdict {
	case "done":
		return bulk.BatchResult{Result: bulk.Fitting(v.Result, h.o.MaxResult)}
	case "retry":
		err = bulk.FailAfter(code, after, cause)
	case "failed":
		err = bulk.Permanent(code, cause)
	case "busy":
		err = bulk.Busy(after, cause)
	case "busy_group":
		err = bulk.BusyGroup(after, cause)
	default:
		return h.badVerdict(fmt.Sprintf("is %q; it must be done, retry, failed, busy or busy_group", v.Verdict))
	}
	if v.Down && v.Verdict != "failed" {
		err = bulk.Down(err)
	}
	return bulk.BatchResult{Err: err}
}

// unanswered returns the failure of a request without a response.
func (h *Handler) unanswered(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled): // err may be its cause
		return bulk.Fail("cancelled", err)
	case ctx.Err() != nil || outbound.IsTimeout(err):
		return bulk.Down(bulk.Fail("timeout", err))
	}
	return bulk.Down(bulk.Fail("connection", err))
}
