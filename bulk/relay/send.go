package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/anteroom/anteroom/bulk/client"
)

// maxRequest bounds a request of several rows: proxies usually refuse more than a mebibyte.
const maxRequest = 900 << 10

// job returns the job of a row; wrong is the reason why the row is not a valid job.
func (w *row) job(groupType string) (j client.Job, wrong string) {
	j = client.Job{ID: w.jobID, Payload: w.payload, Cost: w.cost}
	if w.kind != groupType {
		j.Type = w.kind
	}
	switch at := w.runAt.(type) {
	case nil:
	case time.Time:
		if j.RunAt = at.UTC(); !at.IsZero() && (at.Year() < 1 || at.Year() > 9999) {
			return j, "run_at is outside of the years 1 to 9999"
		}
	default:
		return j, fmt.Sprintf("run_at is not a time: %s", at)
	}
	switch {
	case !w.size.Valid:
		return j, "payload is NULL: use the JSON value null for a job without a payload"
	case w.payload == nil:
		return j, fmt.Sprintf("payload has %d bytes: a job has at most %d, and usually less (limits.line)", w.size.Int64, maxPayload)
	case !json.Valid(w.payload):
		return j, "payload is not valid JSON"
	case w.jobID == "":
		return j, "job_id is empty: use an id that no other row of the group has"
	case w.cost < 1:
		return j, fmt.Sprintf("cost is %d: use 1 or more", w.cost)
	}
	return j, ""
}

// send sends rows to their group and sets their verdicts. Its error concerns the server as a whole, or the tenant (tenantError);
// rows without a verdict are then sent again later.
func (r *Relay) send(ctx context.Context, to target, groupType string, rows []*row) error {
	for len(rows) > 0 {
		var jobs []client.Job
		n, size := 0, 0
		for ; n < len(rows) && n < client.MaxBatch && (n == 0 || size+len(rows[n].payload) < maxRequest); n++ {
			j, _ := rows[n].job(groupType) // rows without a job are not sent
			jobs = append(jobs, j)
			size += len(rows[n].payload) + 200
		}
		if err := r.sendPart(ctx, to, rows[:n], jobs); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func (r *Relay) sendPart(ctx context.Context, to target, rows []*row, jobs []client.Job) error {
	sent, err := r.o.Client.AddBatch(ctx, to.group, to.created, jobs)
	p, refused := errors.AsType[*client.Problem](err)
	switch {
	case err == nil:
		for _, w := range rows {
			w.verdict = accepted
		}
		// The response counts duplicates and does not name them.
		for _, w := range rows[:min(int(sent.Duplicates), len(rows))] {
			w.verdict = repeated
		}
		for _, no := range sent.Rejections {
			if i := no.Line - 1; i >= 0 && i < int64(len(rows)) {
				rows[i].verdict, rows[i].reason = aside, no.Reason
			}
		}
		return nil
	case !refused:
		return err
	case p.Code == "sealed":
		return r.resolve(ctx, to, rows, p.Accepted > 0)
	case p.Code == "not_found":
		return r.gone(ctx, to.group, rows, p.Accepted > 0)
	case p.Status == http.StatusRequestEntityTooLarge && len(rows) > 1:
		half := len(rows) / 2
		if err := r.sendPart(ctx, to, rows[:half], jobs[:half]); err != nil {
			return err
		}
		return r.sendPart(ctx, to, rows[half:], jobs[half:])
	case p.Status == http.StatusRequestEntityTooLarge:
		rows[0].verdict, rows[0].reason = aside, p.Error()
		return nil
	case ofTenant(p):
		return &tenantError{rows[0].tenant, p}
	}
	return err
}

// tenantError is a refusal that concerns one tenant: its quota, or a token that is not for it.
type tenantError struct {
	tenant string
	cause  *client.Problem
}

func (e *tenantError) Error() string { return fmt.Sprintf("tenant %q: %v", e.tenant, e.cause) }
func (e *tenantError) Unwrap() error { return e.cause }

// resolve sets the verdicts of rows whose group is sealed: it asks the server which of them the group has. partly is set if the
// group accepted some of them before its seal.
func (r *Relay) resolve(ctx context.Context, to target, rows []*row, partly bool) error {
	group := to.group
	r.mu.Lock()
	r.groups.close(group)
	r.mu.Unlock()
	maybe := false
	for _, w := range rows {
		if !w.tried && !partly {
			w.refuse(&closedError{group})
			continue
		}
		_, err := r.o.Client.Job(ctx, group, w.jobID)
		p, refused := errors.AsType[*client.Problem](err)
		switch {
		case err == nil:
			w.verdict = repeated
		case refused && p.Code == "result_not_kept":
			w.doubt("group %q is sealed and its outcomes are not kept any longer", group)
		case refused && p.Code == "not_found":
			w.refuse(&closedError{group})
			maybe = true
		default:
			return err
		}
	}
	if !maybe {
		return nil
	}
	// A group that was deleted meanwhile does not have the jobs either.
	g, err := r.o.Client.Group(ctx, group)
	p, ok := errors.AsType[*client.Problem](err)
	if ok && p.Code == "not_found" || err == nil && !to.created.IsZero() && !g.CreatedAt.Equal(to.created) {
		return r.gone(ctx, to.group, rows, partly)
	}
	if err != nil { // all rows are asked for again later
		for _, w := range rows {
			w.verdict = kept
		}
	}
	return err
}

// gone sets the verdicts of rows whose group was deleted.
func (r *Relay) gone(ctx context.Context, group string, rows []*row, partly bool) error {
	// A token that is not for the tenant does not see the tenant's groups.
	for _, err := range r.o.Client.Groups(ctx, client.Filter{Tenant: rows[0].tenant}) {
		p, refused := errors.AsType[*client.Problem](err)
		if refused && p.Status == http.StatusForbidden {
			return &tenantError{rows[0].tenant, p}
		}
		if err != nil {
			return err
		}
		break
	}
	r.mu.Lock()
	delete(r.groups.open, group)
	r.mu.Unlock()
	for _, w := range rows {
		switch {
		case w.verdict == repeated || w.uncertain:
		case w.tried || partly:
			w.doubt("group %q was deleted", group)
		default:
			w.verdict, w.reason = unsent, ""
		}
	}
	return nil
}

// doubt sets aside a row that may or may not have been accepted.
func (w *row) doubt(format string, args ...any) {
	w.verdict, w.uncertain = aside, true
	w.reason = fmt.Sprintf(format, args...) + ", and the row may have been accepted before: it is not sent again, because it could run twice. To run it, set sent_to and error to NULL"
}

// refuse sets the verdict of a row that its group has certainly not accepted. The relay finds another group for it, unless the
// application has chosen the group.
func (w *row) refuse(err error) {
	if w.verdict = unsent; w.group.Valid {
		w.verdict, w.reason = aside, err.Error()
	}
}
