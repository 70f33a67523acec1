package console

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// Whether an entry of the audit log can be undone.
const (
	undoPossible = "possible"
	undoChanged  = "changed" // a field has another value by now
	undoNever    = "never"
)

// undoable returns whether an entry can be undone while a snapshot is in force.
func undoable(s *admission.Snapshot, e *admission.Entry) string {
	switch {
	case e.Seq == 0 || !admission.Reversible(e):
		return undoNever
	case !s.Known || !admission.InForce(s, e):
		return undoChanged
	}
	return undoPossible
}

// irreversible has the way out for actions that cannot be undone.
var irreversible = map[string]string{
	"reset": "the places are lost; their visitors join again", "evacuate": "the sessions have ended; their visitors return at their order",
	"revoke": "the session has ended; its visitor joins again", "remove_ticket": "the place is lost; its visitor joins again",
	"facts": "send the former items with PUT …/facts", "notice": "send the former notice with PUT …/notices/{notice}",
}

// undo takes back an entry of the audit log.
func (c levers) undo(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	if err := checkNoFields(r); err != nil {
		return err
	}
	seq, err := strconv.ParseInt(r.PathValue("entry"), 10, 64)
	if err != nil || seq < 1 {
		return ophttp.NewProblem(http.StatusNotFound, "unknown_entry", "an entry of the audit log has a number, its seq in GET /admin/v1/audit")
	}
	entry, err := read(r, func(ctx context.Context) (*admission.Entry, error) { return room.Queue.AuditEntry(ctx, seq) })
	switch {
	case err != nil:
		return err
	case entry == nil:
		return ophttp.NewProblem(http.StatusNotFound, "unknown_entry", "the audit log of the room %q has no entry with the seq %d; the store keeps the newest 5,000", room.Queue.ID(), seq)
	case !admission.Reversible(entry):
		why := cmp.Or(irreversible[entry.Action], "it changed no live setting")
		return ophttp.NewProblem(http.StatusConflict, "not_reversible", "the entry %d (%s) cannot be undone: %s", seq, entry.Action, why)
	}
	if faults := faultsBeside(&room, formerly(entry)); len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	return c.change(w, r, who, room, "undo", func(ctx context.Context) error {
		done, err := room.Queue.Undo(ctx, who.Name, entry)
		if err == nil && !done {
			return ophttp.NewProblem(http.StatusConflict, "changed", "a field of the entry %d was changed since; nothing was undone. Read the audit log, and undo the newer change first or change the field with PATCH", seq)
		}
		return err
	})
}

// formerly returns the values before an entry that have to fit the configuration.
func formerly(e *admission.Entry) *admission.Live {
	var l admission.Live
	for _, change := range e.Changes {
		if change.Before == nil {
			continue
		}
		switch change.Field {
		case "method":
			l.Method = change.Before
		case "challenge":
			l.Challenge = change.Before
		case "session.ttl":
			if us, err := strconv.ParseInt(*change.Before, 10, 64); err == nil {
				l.SessionTTL = new(time.Duration(us) * time.Microsecond)
			}
		}
	}
	return &l
}
