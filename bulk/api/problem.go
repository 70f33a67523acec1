package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// noGroup is the answer for a group that is not there, and for one that the token may not know of.
func noGroup(id string) *ophttp.Problem {
	return ophttp.NewProblem(http.StatusNotFound, string(store.CodeNotFound), "there is no group %q; GET /v1/groups lists those there are", ophttp.Shorten(id))
}

// refusals is how the store's refusals are answered.
var refusals = map[store.Code]struct {
	status     int
	retryAfter time.Duration
}{
	store.CodeNotFound:   {status: http.StatusNotFound},
	store.CodeNotKept:    {status: http.StatusNotFound},
	store.CodeExists:     {status: http.StatusConflict},
	store.CodeSealed:     {status: http.StatusConflict},
	store.CodeState:      {status: http.StatusConflict},
	store.CodeHalfIn:     {status: http.StatusConflict},
	store.CodeQuota:      {status: http.StatusTooManyRequests, retryAfter: 5 * time.Second},
	store.CodeOperators:  {status: http.StatusForbidden},
	store.CodeInvalid:    {status: http.StatusUnprocessableEntity},
	store.CodeChunkReuse: {status: http.StatusUnprocessableEntity},
}

// asProblem gives an error the form in which it is answered.
func asProblem(err error) *ophttp.Problem {
	if p, is := errors.AsType[*ophttp.Problem](err); is {
		return p
	}
	if refusal, is := errors.AsType[*store.Refusal](err); is {
		if how, known := refusals[refusal.Code]; known {
			p := ophttp.NewProblem(how.status, string(refusal.Code), "%s", refusal.Detail)
			p.RetryAfter = how.retryAfter
			return p
		}
	}
	if errors.Is(err, store.ErrFull) { // which the store logs
		p := ophttp.NewProblem(http.StatusServiceUnavailable, "store_full", "the store's memory is full and it takes in nothing new; jobs that are in go on. Delete groups that have ended, shorten retention.jobs, retention.groups and retention.dead, or raise maxmemory of Redis; then ask again")
		p.RetryAfter = 5 * time.Second
		return p
	}
	p := ophttp.NewProblem(http.StatusServiceUnavailable, "store_unavailable", "the store did not answer in time; what was asked may or may not have been done, and may be asked again")
	p.RetryAfter, p.Cause = time.Second, err
	return p
}

// again says that the same request may go well later.
func again(p *ophttp.Problem) bool {
	return p.RetryAfter > 0 || p.Status == http.StatusBadRequest || p.Status == http.StatusRequestTimeout
}
