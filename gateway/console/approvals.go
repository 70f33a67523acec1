package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// confirmed marks the context of an action that a second person has confirmed.
type confirmed struct{}

// approvals serves the actions that need two persons.
type approvals struct{ *Console }

// approvalView is an action that waits for a second person.
type approvalView struct {
	ID     string    `json:"id"`
	Room   string    `json:"room"`
	Action string    `json:"action"`
	By     string    `json:"by"`
	At     timestamp `json:"at"`
	Ends   timestamp `json:"expires_at"`
	Yours  bool      `json:"yours"`
}

func viewApproval(a *admission.Approval, who *access.Person) approvalView {
	return approvalView{a.ID, a.Room, a.Action, a.By, timestamp(a.At), timestamp(a.Ends), a.Person == unique(who)}
}

// unique returns the name that distinguishes a person from all others.
func unique(who *access.Person) string { return string(who.Via) + ":" + who.Subject }

// askSecond records an action that needs a second person, and answers 202. It returns false where the action may be done now: it needs no second person,
// or one has confirmed it. body is the body of the request, which the handler reads again after the confirmation.
func (c approvals) askSecond(w http.ResponseWriter, r *http.Request, who *access.Person, room Room, action string, body []byte) (asked bool, err error) {
	if !slices.Contains(c.o.TwoPerson, action) || r.Context().Value(confirmed{}) != nil {
		return false, nil
	}
	a := admission.Approval{Action: action, By: who.Name, Person: unique(who), Body: string(body)}
	if err := store(r, func(ctx context.Context) error { return room.Queue.Ask(ctx, &a) }); err != nil {
		return true, err
	}
	c.log.WarnContext(r.Context(), "an action waits for a second person", "who", who.Name, "room", a.Room, "action", action, "id", a.ID)
	w.Header().Set("Location", "/admin/v1/pending/"+a.ID)
	ophttp.WriteJSON(w, http.StatusAccepted, "application/json", viewApproval(&a, who))
	return true, nil
}

func (c approvals) listApprovals(w http.ResponseWriter, r *http.Request, who *access.Person) error {
	answer := struct {
		Pending []approvalView `json:"pending"`
	}{Pending: []approvalView{}}
	for _, room := range c.o.Rooms() {
		if !who.May(access.Viewer, room.Queue.ID()) {
			continue
		}
		list, err := read(r, room.Queue.Approvals)
		if err != nil {
			return err
		}
		for i := range list {
			answer.Pending = append(answer.Pending, viewApproval(&list[i], who))
		}
	}
	slices.SortStableFunc(answer.Pending, func(a, b approvalView) int { return int(a.At - b.At) })
	return ophttp.OK(w, answer)
}

// findApproval returns the room and the route of an action that waits, for a person with the role of the route in the room.
func (c approvals) findApproval(r *http.Request, who *access.Person) (Room, route, error) {
	id := r.PathValue("approval")
	for _, room := range c.o.Rooms() {
		if !who.May(access.Viewer, room.Queue.ID()) {
			continue
		}
		list, err := read(r, room.Queue.Approvals)
		if err != nil {
			return Room{}, route{}, err
		}
		for _, a := range list {
			row, known := c.actions[a.Action]
			if a.ID == id && known {
				return room, row, row.authorize(a.Room, who)
			}
		}
	}
	return Room{}, route{}, noApproval()
}

func noApproval() error {
	return ophttp.NewProblem(http.StatusNotFound, "unknown_pending", "no such action waits for a confirmation: it was confirmed or withdrawn, or 10 minutes have passed")
}

// confirmAction does an action that another person has asked for.
func (c approvals) confirmAction(w http.ResponseWriter, r *http.Request, who *access.Person) error {
	if err := checkNoFields(r); err != nil {
		return err
	}
	room, row, err := c.findApproval(r, who)
	if err != nil {
		return err
	}
	a, err := read(r, func(ctx context.Context) (admission.Approval, error) {
		return room.Queue.Confirm(ctx, r.PathValue("approval"), who.Name, unique(who))
	})
	if err != nil {
		return err
	}
	both := *who
	both.Name = who.Name + ", asked by " + a.By
	again := r.Clone(context.WithValue(r.Context(), confirmed{}, true))
	again.SetPathValue("id", a.Room)
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader([]byte(a.Body))), int64(len(a.Body))
	again.Header.Set("Content-Type", "application/json")
	return row.serve(w, again, &both)
}

func (c approvals) withdrawAction(w http.ResponseWriter, r *http.Request, who *access.Person) error {
	if err := checkNoFields(r); err != nil {
		return err
	}
	room, _, err := c.findApproval(r, who)
	if err != nil {
		return err
	}
	err = store(r, func(ctx context.Context) error {
		return room.Queue.Withdraw(ctx, r.PathValue("approval"), who.Name, unique(who))
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// approvalProblem returns the problem of an error of approvals, nil of others.
func approvalProblem(err error) *ophttp.Problem {
	switch {
	case errors.Is(err, admission.ErrNoApproval):
		p, _ := errors.AsType[*ophttp.Problem](noApproval())
		return p
	case errors.Is(err, admission.ErrSamePerson):
		return ophttp.NewProblem(http.StatusForbidden, "same_person", "you have asked for this action; another person has to confirm it")
	case errors.Is(err, admission.ErrCrowded):
		return ophttp.NewProblem(http.StatusConflict, "too_many_pending", "100 actions of this room wait for a confirmation; withdraw some")
	}
	return nil
}
