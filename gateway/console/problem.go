package console

import (
	"errors"
	"net/http"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/ophttp"
	"github.com/anteroom/anteroom/internal/refusal"
)

// asProblem returns the problem that a handler's error is sent as.
func asProblem(err error) *ophttp.Problem {
	if p := approvalProblem(err); p != nil {
		return p
	}
	var p *ophttp.Problem
	switch {
	case errors.Is(err, admission.ErrUnknown):
		return ophttp.NewProblem(http.StatusNotFound, "unknown_ticket", "the store holds no ticket or session with that id in this room")
	case errors.Is(err, admission.ErrStore):
		if why, refused := refusal.Of(err); refused {
			p = ophttp.NewProblem(http.StatusServiceUnavailable, "store_unavailable", "the store refuses writes: %s. Remedy: %s; then repeat the request", why.Cause, why.Remedy)
			p.RetryAfter = time.Second
			break
		}
		p = ophttp.NewProblem(http.StatusServiceUnavailable, "store_unavailable", "the store did not reply in time; a change may or may not have been made, and the request can be repeated")
		p.RetryAfter = time.Second
	default:
		p = ophttp.NewProblem(http.StatusInternalServerError, "internal", "the gateway's log has the cause")
	}
	p.Cause = err
	return p
}
