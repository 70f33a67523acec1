package bulk

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Job is one run of a job.
type Job struct {
	ID      string
	Group   string
	Tenant  string
	Type    string
	Payload []byte // JSON; the handler may keep it
	Cost    int64
	Attempt int64 // from 1; refusals by the downstream and crashes do not count
	Fence   int64 // increases with every start of any job: writers can refuse a smaller one
	// IdempotencyKey is the same for every run of this job, including redrives.
	IdempotencyKey string
}

// Handler runs jobs of one type. ctx ends with the job's timeout or the loss of its lease. Handle returns the job's
// result, JSON or any bytes, within limits.result. An error made by Permanent, Busy, BusyGroup, Fail or FailAfter
// determines what happens to the job; any other is a failed try with the code "error".
type Handler interface {
	Handle(ctx context.Context, job *Job) (result []byte, err error)
}

// HandlerFunc is a function that implements Handler.
type HandlerFunc func(ctx context.Context, job *Job) ([]byte, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, job *Job) ([]byte, error) { return f(ctx, job) }

// Fitting returns the result of a successful run or, if it is longer than most bytes, a short note (nothing if that
// is too long as well). The run has done its work: it must not fail or run again because of a long result.
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

// Kind is the meaning of a failed run for the job.
type Kind int

// The kinds of failure.
const (
	KindRetry     Kind = iota // a failed try; the job is dead after the last one
	KindPermanent             // failed; not retried
	KindBusy                  // refused for now: the job waits, and the try does not count
	KindBusyGroup             // as KindBusy, and the whole group waits, for up to a minute
)

// MaxAfter is the longest wait that a handler can ask for.
const MaxAfter = 24 * time.Hour

// Failure is a handler's error with its meaning.
type Failure struct {
	Kind  Kind
	Code  string        // [a-z0-9_], at most 64; outcomes are counted by it
	After time.Duration // shortest wait before the next run, up to MaxAfter; 0: the worker chooses. Unused for KindPermanent
	Err   error
	// Down is set if the service that the handler calls is down or refuses every job. It counts for the breaker of
	// the type.
	Down bool
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %v", f.Code, f.Err) }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Permanent returns an error that is not retried.
func Permanent(code string, err error) error {
	return &Failure{Kind: KindPermanent, Code: code, Err: err}
}

// Busy returns the refusal of one job for now, such as 503; after is the downstream's Retry-After, 0 if there is
// none.
func Busy(after time.Duration, err error) error {
	return &Failure{Kind: KindBusy, Code: "busy", After: after, Err: err}
}

// BusyGroup returns a refusal of all jobs of the group, such as 429 with Retry-After.
func BusyGroup(after time.Duration, err error) error {
	return &Failure{Kind: KindBusyGroup, Code: "busy", After: after, Err: err}
}

// FailAfter returns a failed try whose next one starts after at least that time, as greylisting asks for.
func FailAfter(code string, after time.Duration, err error) error {
	return &Failure{Kind: KindRetry, Code: code, After: after, Err: err}
}

// Fail returns a failed try with a code.
func Fail(code string, err error) error { return &Failure{Kind: KindRetry, Code: code, Err: err} }

// Down marks a failure of the whole service that the handler calls: it refuses connections, times out, is overloaded,
// or rejects the handler's credentials. err was returned by Fail, FailAfter, Busy or BusyGroup.
func Down(err error) error {
	if f, ok := errors.AsType[*Failure](err); ok {
		f.Down = true
	}
	return err
}

// failureOf returns the Failure in a handler's error.
func failureOf(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Failure{Kind: KindRetry, Code: "timeout", Err: err, Down: true}
	}
	return &Failure{Kind: KindRetry, Code: "error", Err: err}
}
