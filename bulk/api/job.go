package api

import (
	"errors"
	"net/http"

	"github.com/anteroom/anteroom/bulk/store"
)

// jobView is one job as it stands.
type jobView struct {
	Type string `json:"type"`
	outcomeView
	NextAt  *timestamp `json:"next_at,omitempty"`
	Process string     `json:"process,omitempty"`
}

// showJob answers with one job of a group, whether it waits, runs or has ended.
func (s *Server) showJob(w http.ResponseWriter, r *http.Request, who identity) error {
	g, err := s.group(r, who)
	if err != nil {
		return err
	}
	if err := noQuery(r); err != nil {
		return err
	}
	id := r.PathValue("job")
	j, err := s.store.Job(r.Context(), g.ID, id)
	if refusal, is := errors.AsType[*store.Refusal](err); is && refusal.Code == store.CodeNotFound {
		return newProblem(http.StatusNotFound, string(store.CodeNotFound), "group %q has no job %q, or its retention.jobs has passed", g.ID, shorten(id))
	}
	if err != nil {
		return err
	}
	return ok(w, jobView{Type: j.Type, outcomeView: outcomeOf(j.Outcome), NextAt: at(j.Next), Process: j.Process})
}
