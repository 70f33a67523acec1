package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
	"github.com/anteroom/anteroom/internal/refusal"
)

// noGroup returns the problem of a group that does not exist or that the token may not see.
func noGroup(id string) *ophttp.Problem {
	return ophttp.NewProblem(http.StatusNotFound, string(store.CodeNotFound), "there is no group %q; GET /v1/groups lists the existing ones", ophttp.Shorten(id))
}

// refusals maps the store's refusals to responses.
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

// refusedWith reports whether an error is a refusal with that code.
func refusedWith(err error, code store.Code) bool {
	refusal, is := errors.AsType[*store.Refusal](err)
	return is && refusal.Code == code
}

// asProblem returns the problem that an error is sent as.
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
	if errors.Is(err, store.ErrFull) { // the store logs it
		p := ophttp.NewProblem(http.StatusServiceUnavailable, "store_full", "the store's memory is full and it accepts nothing new; accepted jobs go on. Delete groups that have ended, shorten retention.jobs, retention.groups and retention.dead, or raise maxmemory of Redis; then repeat the request")
		p.RetryAfter = 5 * time.Second
		return p
	}
	where := "the store"
	if at, is := errors.AsType[*store.ShardError](err); is {
		where = fmt.Sprintf("shard %d of the store", at.Shard)
	}
	if why, refused := refusal.Of(err); refused {
		p := ophttp.NewProblem(http.StatusServiceUnavailable, "store_unavailable", "%s refuses writes: %s. Remedy: %s; then repeat the request", where, why.Cause, why.Remedy)
		p.RetryAfter, p.Cause = time.Second, err
		return p
	}
	p := ophttp.NewProblem(http.StatusServiceUnavailable, "store_unavailable", "%s did not reply in time; the request may or may not have taken effect, and can be repeated", where)
	p.RetryAfter, p.Cause = time.Second, err
	return p
}

// again reports whether the same request may succeed later.
func again(p *ophttp.Problem) bool {
	return p.RetryAfter > 0 || p.Status == http.StatusBadRequest || p.Status == http.StatusRequestTimeout
}
