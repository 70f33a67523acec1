package api

import (
	"net/http"
	"net/url"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// showJob responds with one job of a group, in any state.
func (s jobRoutes) showJob(w http.ResponseWriter, r *http.Request, who identity) error {
	g, err := s.group(r, who)
	if err != nil {
		return err
	}
	if err := noQuery(r); err != nil {
		return err
	}
	view, err := s.jobOf(r, g.ID)
	if err != nil {
		return err
	}
	return ophttp.OK(w, view)
}

// jobOf reads the job in the path.
func (s jobRoutes) jobOf(r *http.Request, group string) (jobView, error) {
	id := r.PathValue("job")
	j, err := s.store.Job(r.Context(), group, id)
	if err != nil {
		return jobView{}, noJob(err, group, id)
	}
	v := jobView{Outcome: outcomeOf(j.Outcome), NextAt: at(j.Next), ExpiresAt: at(j.ExpiresAt), Process: j.Process, Cancelling: j.Cancelling}
	v.Type = j.Type
	return v, nil
}

// noJob returns a 404 for the refusal of a missing job, and any other error as it is.
func noJob(err error, group, id string) error {
	if refusedWith(err, store.CodeNotFound) {
		return ophttp.NewProblem(http.StatusNotFound, string(store.CodeNotFound), "group %q has no job %q, or its retention.jobs has passed", group, ophttp.Shorten(id))
	}
	return err
}

// oneJob checks a request that acts on one job.
func (s jobRoutes) oneJob(r *http.Request, who identity) (group, job string, err error) {
	if group, err = s.visible(r, who); err != nil {
		return "", "", err
	}
	if err := noQuery(r); err != nil {
		return "", "", err
	}
	if err := readFields(r, nil, true, &struct{}{}); err != nil {
		return "", "", err
	}
	return group, r.PathValue("job"), nil
}

// cancelJob cancels one job. A running one is asked to stop: 202.
func (s jobRoutes) cancelJob(w http.ResponseWriter, r *http.Request, who identity) error {
	group, job, err := s.oneJob(r, who)
	if err != nil {
		return err
	}
	running, err := s.store.CancelJob(r.Context(), group, job)
	if err != nil {
		return noJob(err, group, job)
	}
	s.log.InfoContext(r.Context(), "job cancelled", "who", who.name, "group", group, "job", job, "running", running)
	view, err := s.jobOf(r, group)
	if refusedWith(err, store.CodeNotKept) {
		g, gone := s.store.Group(r.Context(), group) // the group does not keep the outcome
		view, err = jobView{Outcome: outcomeView{ID: job, Type: g.Type, Status: "cancelled"}}, gone
	}
	if err != nil {
		return err
	}
	status := http.StatusOK
	if running && view.Status == "running" {
		status = http.StatusAccepted
	}
	ophttp.WriteJSON(w, status, "application/json", view)
	return nil
}

// retryJob lets a waiting job start now, and redrives one that has failed or died: 201 with the new group's job.
func (s jobRoutes) retryJob(w http.ResponseWriter, r *http.Request, who identity) error {
	group, job, err := s.oneJob(r, who)
	if err != nil {
		return err
	}
	as, err := s.store.RetryJob(r.Context(), group, job, who.most.Groups)
	if err != nil {
		return noJob(err, group, job)
	}
	status := http.StatusOK
	if as != nil {
		group, status = as.ID, http.StatusCreated
		w.Header().Set("Location", "/v1/groups/"+group+"/jobs/"+url.PathEscape(job))
	}
	s.log.InfoContext(r.Context(), "job retried", "who", who.name, "group", group, "job", job)
	view, err := s.jobOf(r, group)
	if err != nil {
		return err
	}
	view.Group = group
	ophttp.WriteJSON(w, status, "application/json", view)
	return nil
}
