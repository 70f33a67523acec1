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
	// IdempotencyKey is the same for every run of this job, those of redrives too.
	IdempotencyKey string
}

// Handler runs jobs of one type. ctx ends with the job's time-out or the loss of its lease; what is returned is the job's
// result (JSON or any bytes, within limits.result). An error made by Permanent, Busy, BusyGroup, Fail or FailAfter determines
// what happens to the job; any other is a failed try with the code "error".
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
	KindBusy                  // refused for now: the job waits, and no try is spent
	KindBusyGroup             // as KindBusy, and no other job of the group starts meanwhile, for up to a minute
)

// MaxAfter is the longest wait that a handler can ask for.
const MaxAfter = 24 * time.Hour

// Failure is a handler's error with what it means.
type Failure struct {
	Kind  Kind
	Code  string        // [a-z0-9_], at most 64: aggregation counts by it
	After time.Duration // least wait before the job runs again, up to MaxAfter; 0: the worker chooses. Not for KindPermanent
	Err   error
	// Down says that what the handler calls is away or refuses every job, and not this one: it counts for the breaker of the type.
	Down bool
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %v", f.Code, f.Err) }

// Unwrap gives the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Permanent marks an error that another try will not mend.
func Permanent(code string, err error) error {
	return &Failure{Kind: KindPermanent, Code: code, Err: err}
}

// Busy marks a refusal of this job for now, as 503 is; after is the downstream's Retry-After, 0 where it gave none.
func Busy(after time.Duration, err error) error {
	return &Failure{Kind: KindBusy, Code: "busy", After: after, Err: err}
}

// BusyGroup marks a refusal that holds for every job of the group, as 429 with Retry-After does.
func BusyGroup(after time.Duration, err error) error {
	return &Failure{Kind: KindBusyGroup, Code: "busy", After: after, Err: err}
}

// FailAfter is a failed try whose next one is to start after at least that time, as greylisting asks for.
func FailAfter(code string, after time.Duration, err error) error {
	return &Failure{Kind: KindRetry, Code: code, After: after, Err: err}
}

// Fail is a failed try with a code.
func Fail(code string, err error) error { return &Failure{Kind: KindRetry, Code: code, Err: err} }

// Down marks a failure as one of what the handler calls as a whole: it refuses connections, does not answer in time, is
// overloaded, or no longer takes the handler's credentials. err is what Fail, FailAfter, Busy or BusyGroup returned.
func Down(err error) error {
	if f, ok := errors.AsType[*Failure](err); ok {
		f.Down = true
	}
	return err
}

// failureOf reads what a handler's error means.
func failureOf(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Failure{Kind: KindRetry, Code: "timeout", Err: err, Down: true}
	}
	return &Failure{Kind: KindRetry, Code: "error", Err: err}
}
