package bulk

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Job is one run of a job, as a handler sees it.
type Job struct {
	ID      string
	Group   string
	Tenant  string
	Type    string
	Payload []byte // JSON; the handler may keep it
	Cost    int64
	Attempt int64 // from 1; does not grow when the downstream refuses or a worker crashes
	Fence   int64 // grows with every start of any job: whoever writes can refuse an older one
	// IdempotencyKey is the same for every run of this job.
	IdempotencyKey string
}

// Handler runs jobs of one type. ctx ends with the job's time-out or the loss of its lease; what is returned is the job's
// result (JSON or any bytes, within limits.result). An error made by Permanent, Busy or Fail says how to go on; any other
// is a failed try with the code "error".
type Handler interface {
	Handle(ctx context.Context, job *Job) (result []byte, err error)
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, job *Job) ([]byte, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, job *Job) ([]byte, error) { return f(ctx, job) }

// Fitting gives the result of a run that has done its work, or, where it is longer than most bytes, a note in its place (and
// nothing where that is longer, too): to call such a run failed, or to run it again, would both be wrong.
func Fitting(result []byte, most int) []byte {
	if len(result) <= most {
		return result
	}
	note := fmt.Appendf(nil, `{"dropped":"result_too_large","limit":%d}`, most)
	if len(note) > most {
		return nil
	}
	return note
}

// Kind says what a failed run means for the job.
type Kind int

// The kinds of failure.
const (
	KindRetry     Kind = iota // a failed try; dead after the last
	KindPermanent             // failed for good, not tried again
	KindBusy                  // refused for now: waits, and no try is spent
)

// Failure is a handler's error with what it means.
type Failure struct {
	Kind  Kind
	Code  string        // [a-z0-9_], at most 64: aggregation counts by it
	After time.Duration // KindBusy: how long the downstream asked to wait; 0: it did not say
	Err   error
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %v", f.Code, f.Err) }

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Permanent marks an error that another try will not mend.
func Permanent(code string, err error) error {
	return &Failure{Kind: KindPermanent, Code: code, Err: err}
}

// Busy marks a refusal for now, as 429 and 503 are; after is the downstream's Retry-After, 0 where it gave none.
func Busy(after time.Duration, err error) error {
	return &Failure{Kind: KindBusy, Code: "busy", After: after, Err: err}
}

// Fail is a failed try with a code.
func Fail(code string, err error) error { return &Failure{Kind: KindRetry, Code: code, Err: err} }

// failureOf reads what a handler's error means.
func failureOf(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Failure{Kind: KindRetry, Code: "timeout", Err: err}
	}
	return &Failure{Kind: KindRetry, Code: "error", Err: err}
}
