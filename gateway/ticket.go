package gateway

import (
	"errors"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/token"
)

// checkedTicket is a ticket with the result of its check.
type checkedTicket struct {
	token    token.Waiting
	ticket   admission.Ticket
	standing admission.Standing
	forecast *forecast.Room
	poll     int // seconds until the next poll, if the ticket still waits
}

// check checks a ticket, which also counts as the presence of its visitor. poll is the number of seconds until the next poll; 0: as
// the forecast advises.
func (v *visit) check(w token.Waiting, poll int) (checkedTicket, error) {
	adopt(v, &w)
	c := checkedTicket{token: w, forecast: v.room.forecaster.Room(), poll: poll}
	t := v.room.forecaster.Ticket(c.forecast, w.Order)
	if poll == 0 {
		c.poll = t.Poll(random())
	}
	c.ticket = ticketOf(&w, c.poll, t.Wait, v.grant.client())
	var err error
	c.standing, err = v.room.store.Check(callsOf(v, c.ticket.ID), c.ticket)
	return c, err
}

// claimAdmitted claims a ticket that the check found admitted.
func (v *visit) claimAdmitted(c *checkedTicket) error {
	if s := &c.standing; s.State != admission.Admitted && s.State != admission.Active || s.Offline {
		return nil
	}
	claimed, err := v.claim(c.standing.Ticket, c.ticket.Client)
	if err != nil && !errors.Is(err, admission.ErrNotYet) {
		return err
	}
	c.standing = claimed
	return nil
}

// claim claims an admitted ticket. While the store is away the visitor keeps waiting, and the next poll claims the ticket.
func (v *visit) claim(t admission.Ticket, client admission.Client) (admission.Standing, error) {
	t.Client = client
	s, err := v.room.store.Claim(callsOf(v, t.ID), t)
	if errors.Is(err, admission.ErrStore) {
		return admission.Standing{State: admission.Waiting, Ticket: t, Offline: true, Unsure: true}, nil
	}
	return s, err
}

// serveStatus sends the status of a ticket, and claims an admitted ticket.
func serveStatus(v *visit) (decision, *answer.Problem) {
	w, p := v.tokens.needTicket()
	if p != nil {
		return decision{}, p
	}
	c, err := v.check(w, 0)
	if err != nil {
		return decision{}, problemOf(err)
	}
	return ticketStatus(v, 200, &c)
}

// ticketStatus sends the status object of a ticket that was checked.
func ticketStatus(v *visit, code int, c *checkedTicket) (decision, *answer.Problem) {
	if err := v.claimAdmitted(c); err != nil {
		return decision{}, problemOf(err)
	}
	s := &c.standing
	shareSession(v, s)
	if s.State != admission.Active && c.forecast.Snapshot.Policy.Open() {
		if s.State == admission.Waiting && s.Renewed {
			v.grant.renewTicket(&c.token, &s.Ticket)
		}
		return openStatus(v, code, c.forecast, &c.token, c.poll), nil
	}
	switch s.State {
	case admission.Active:
		return admittedStatus(v, code, &c.token, s, v.sessionState(s, &c.token), c.token.Used), nil
	case admission.Waiting, admission.Admitted:
		return waitingStatus(v, code, c), nil
	case admission.Expired:
		return expiredStatus(v, code, reasonOf(s)), nil
	case admission.Refused:
		v.room.countRefusedJoin(refusalReason(admission.TooMany, s))
		out := statusOf(v, c.forecast, &c.token, &forecast.Ticket{}, answer.StateRejected)
		out.Reason, out.Refresh = reasonOf(s), seconds(s.Retry)
		return withStatus(code, out), nil
	}
	out := statusOf(v, c.forecast, &c.token, &forecast.Ticket{}, answer.StateName(s.State))
	out.AdmittedAt = s.AdmittedAt
	return withStatus(code, out), nil
}

// openStatus sends the status of a ticket in an open room. The gateway signs no pass, because a pass would skip a later queue, and no
// new ticket; an existing ticket stays valid.
func openStatus(v *visit, code int, r *forecast.Room, w *token.Waiting, poll int) decision {
	out := statusOf(v, r, w, &forecast.Ticket{}, answer.StateAdmitted)
	out.Refresh, out.Token = poll, v.grant.token
	return withStatus(code, out)
}

func waitingStatus(v *visit, code int, c *checkedTicket) decision {
	s, unordered := &c.standing, c.token.Order == 0
	if s.Renewed || v.binding.Changes(c.token.Bind) {
		v.grant.renewTicket(&c.token, &s.Ticket)
	}
	t := v.room.forecaster.Ticket(c.forecast, s.Ticket.Order)
	if unordered && s.Ticket.Order != 0 { // the lottery has given the ticket an order
		c.poll = forecast.PollWithin(&s.Ticket, t.Poll(random()))
	}
	out := statusOf(v, c.forecast, &c.token, &t, waitingState(c.forecast, s.Ticket.Order))
	out.Refresh, out.Token = c.poll, v.grant.token
	return withStatus(code, out)
}

// admittedStatus sends a session's first or next pass.
func admittedStatus(v *visit, code int, w *token.Waiting, s *admission.Standing, state string, used int64) decision {
	p := v.grant.signPass(s, used)
	out := statusOf(v, v.room.forecaster.Room(), w, &forecast.Ticket{}, state)
	out.AdmittedAt, out.ExpiresAt, out.Pass = s.AdmittedAt, p.Expires, v.grant.pass
	return withStatus(code, out)
}

// sessionState returns the state for the client of a session: admitted with the first pass, active with later ones. The first pass
// also records the wait. Without the store each pass counts as the first.
func (v *visit) sessionState(s *admission.Standing, w *token.Waiting) string {
	if !s.First && !s.Offline {
		return answer.StateActive
	}
	v.room.observeWait(s, w)
	traceClaim(v, s, w)
	return answer.StateAdmitted
}

// observeWait records the wait of a visitor, and compares it with the announced wait.
func (r *room) observeWait(s *admission.Standing, w *token.Waiting) {
	if s.AdmittedAt == 0 {
		return
	}
	waited := max(0, float64(s.AdmittedAt-joinedAt(w))/1e6)
	m := r.metrics
	m.Wait.Observe(waited)
	if ratio, in, ok := r.forecaster.Observe(forecast.Announced(w), waited); ok {
		m.ETAError.Observe(ratio)
		m.Ranges[in].Inc()
	}
}

// expiredStatus sends the status of an expired ticket, with a new ticket.
func expiredStatus(v *visit, code int, reason string) decision {
	lost := func(refresh int) decision {
		f := v.room.forecaster.Room()
		policy := &f.Snapshot.Policy
		v.out.Object = answer.Status{
			Room: v.room.id, State: answer.StateExpired, Reason: reason, Refresh: refresh, Message: policy.Message, Paused: policy.Paused,
			Waiting: f.Snapshot.Waiting + f.Unheard, Compat: v.room.compat(f), Now: v.now,
		}
		return withStatus(code, &v.out.Object)
	}
	if v.room.requiresSolution() { // a new ticket needs a new proof
		return lost(1)
	}
	a, barred := newArrival(v)
	if barred != nil {
		return lost(answer.RoomFull.Retry)
	}
	s, refusal, err := v.room.store.Join(callsOf(v, a.ID), a.Arrival)
	switch {
	case err == nil && refusal == admission.TooMany:
		v.room.countRefusedJoin(refusalReason(refusal, &s))
		return lost(seconds(s.Retry))
	case err != nil, refusal != admission.Granted:
		return lost(answer.RoomFull.Retry)
	}
	traceJoin(v, &a.Arrival, &s)
	r := v.room.forecaster.Room()
	if s.Ticket.Order == 0 && !s.Gathering {
		s.Ticket.Order = v.room.queue.Now()
	}
	var t forecast.Ticket
	if s.State == admission.Waiting {
		t = v.room.forecaster.Ticket(r, s.Ticket.Order)
	}
	w := v.grant.signTicket(&s.Ticket, v.takenAt(s.Ticket.Order), lineage{announced: t.Wait})
	out := statusOf(v, r, &w, &t, answer.StateExpired)
	out.Reason, out.Token, out.Refresh = reason, v.grant.token, v.room.forecaster.FirstPoll(r, w.Epoch != "", &t, random())
	return withStatus(code, out)
}

// leave gives up a ticket.
func leave(v *visit) (decision, *answer.Problem) {
	w, p := v.tokens.needTicket()
	if p != nil {
		return decision{}, p
	}
	err := v.room.store.Leave(callsOf(v, admission.ID(w.ID)), ticketOf(&w, 0, forecast.Wait{}, v.grant.client()))
	if err != nil && !errors.Is(err, admission.ErrUnknown) {
		return decision{}, problemOf(err)
	}
	v.grant.cookie(v.names().Ticket, nil, 0)
	v.grant.cookie(v.names().Nonce, nil, 0)
	return v.empty(204, [2]string{"X-Waiting-Room", answer.StateEnded}), nil
}

// serveClaim claims an admitted ticket.
func serveClaim(v *visit) (decision, *answer.Problem) {
	w, p := v.tokens.needTicket()
	if p != nil {
		return decision{}, p
	}
	c, err := v.check(w, 0) // also enrols a ticket that the store does not have yet
	if err != nil {
		return decision{}, problemOf(err)
	}
	s, err := v.room.store.Claim(callsOf(v, c.ticket.ID), c.ticket)
	if err == nil {
		shareSession(v, &s)
	}
	switch r := v.room.forecaster.Room(); {
	case err == nil && s.State == admission.Active:
		return admittedStatus(v, 200, &c.token, &s, v.sessionState(&s, &c.token), c.token.Used), nil
	case r.Snapshot.Policy.Open() && (err == nil || errors.Is(err, admission.ErrNotYet)):
		return openStatus(v, 200, r, &c.token, 0), nil
	case err != nil:
		return decision{}, problemOf(err)
	case s.State == admission.Waiting, s.State == admission.Admitted:
		return decision{}, answer.NotAdmitted
	case s.State == admission.Refused:
		return decision{}, answer.TooManyJoins.After(seconds(s.Retry))
	}
	return decision{}, problemOfEnded(&s)
}

// statusOf returns the status of a ticket at the time of the request. It is in the memory of the visit, so that decisions stay small.
func statusOf(v *visit, f *forecast.Room, w *token.Waiting, t *forecast.Ticket, state string) *answer.Status {
	v.out.Object = v.room.status(f, w, t, state, v.now)
	return &v.out.Object
}

// waitingState returns the state of a ticket of an order that has not been admitted.
func waitingState(r *forecast.Room, order int64) string {
	switch {
	case r.Snapshot.Policy.Open():
		return answer.StateAdmitted
	case r.Snapshot.Policy.Closed():
		return answer.StateRejected
	case r.Prequeue && order == 0:
		return answer.StatePrequeue
	}
	return answer.StateWaiting
}

// reasonOf returns the reason why a ticket has ended, for visitors.
func reasonOf(s *admission.Standing) string {
	switch {
	case s.State == admission.Refused:
		return "joins"
	case s.State == admission.Lapsed:
		return "lapsed"
	case s.Reason == admission.ReasonLate, s.Reason == admission.ReasonReset, s.Reason == admission.ReasonRemoved:
		return s.Reason
	case s.State == admission.Expired:
		return admission.ReasonLate
	}
	return "ended"
}

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
