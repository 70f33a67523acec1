package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/token"
)

const (
	bodyMax  = 4 << 10 // bytes of a request to an endpoint of the gateway
	nonceMax = 128     // characters
	keyMin   = 22
	keyMax   = 128
	// generations is the number of tickets that a key may have while the ended ones are remembered.
	generations = 64
)

// arrival is a join for the store.
type arrival struct {
	admission.Arrival
	used int64 // seconds of session.max that an earlier session of this visitor has used
}

// usedBy returns the part of session.max that the session of this join has used; 0 for a new session.
func (a *arrival) usedBy(s *admission.Standing) int64 {
	if s.New {
		return 0
	}
	return a.used
}

// serveTickets takes a ticket (POST) or gives it up (DELETE).
func serveTickets(v *visit) (decision, *answer.Problem) {
	if v.req.Is("DELETE") {
		return leave(v)
	}
	body, p := readJoin(v)
	if p != nil {
		return decision{}, p
	}
	if w, ok, _ := v.tokens.findTicket(true); ok {
		if d, p, done := joinAgain(v, w); done {
			return d, p
		}
	}
	open := v.room.queue.Snapshot().Policy.Open()
	if body.altcha == "" && body.captcha == "" { // a solution is of a visitor who has been counted
		v.room.metrics.Arrivals.Inc()
	}
	if v.account.state == accountKnown && !open {
		return joinAccount(v, &body)
	}
	key := v.req.Peek("idempotency-key")
	switch {
	case len(key) > 0 && !validKey(key):
		return decision{}, answer.IdempotencyKey.At("Idempotency-Key")
	case open:
		return openStatus(v, 201, v.room.forecaster.Room(), &token.Waiting{}, 0), nil
	}
	a, p := newArrival(v)
	if p != nil {
		return decision{}, v.refuseAccount(p)
	}
	if d, p, done := joinReturning(v, &body, a); done {
		return d, p
	}
	if v.room.mayRequireSolution() {
		if d, p, done := joinProved(v, &body, key); done {
			return d, p
		}
	}
	if len(key) > 0 {
		d, p, _ := joinByKey(v, key, true)
		return d, p
	}
	if body.nonce != "" {
		a.ID = admission.ID(mix(token.ID(a.ID), []byte(body.nonce)))
	}
	s, refusal, err := v.room.store.Join(callsOf(v, a.ID), a.Arrival)
	return joined(v, 201, &a, &s, refusal, err)
}

// joined responds to a join by the result of the store.
func joined(v *visit, code int, a *arrival, s *admission.Standing, refusal admission.Refusal, err error) (decision, *answer.Problem) {
	switch {
	case err != nil:
		return decision{}, problemOf(err)
	case refusal != admission.Granted:
		return decision{}, v.reject(refusal, s, false)
	}
	traceJoin(v, &a.Arrival, s)
	r := v.room.forecaster.Room()
	if s.State == admission.Active {
		w := token.Waiting{ID: token.ID(s.Ticket.ID), IssuedAt: s.AdmittedAt / 1e6, Order: s.AdmittedAt}
		state := answer.StateAdmitted
		if code == 200 {
			state = answer.StateActive
		}
		d := admittedStatus(v, code, &w, s, state, a.usedBy(s))
		d.outcome = admitted
		return d, nil
	}
	v.grant.giveNonceAfter(s)
	if s.State == admission.Admitted {
		// A poll claims the ticket. A repeated join must not: it may be a delayed request from before the client had the nonce with
		// which it polls, and a claim would end the ticket for that client.
		w := v.grant.signTicket(&s.Ticket, v.takenBy(a, s.Ticket.Order), lineage{used: a.used})
		out := statusOf(v, r, &w, &forecast.Ticket{}, answer.StateWaiting)
		out.Refresh, out.Token = 1, v.grant.token
		return withStatus(code, out), nil
	}
	t := v.room.forecaster.Ticket(r, s.Ticket.Order)
	l := lineage{used: a.used}
	if code == 201 { // the wait that was announced to the first join is not stored
		l.announced = t.Wait
	}
	w := v.grant.signTicket(&s.Ticket, v.takenBy(a, s.Ticket.Order), l)
	out := statusOf(v, r, &w, &t, waitingState(r, w.Order))
	out.Refresh, out.Token, out.Reason = v.room.forecaster.FirstPoll(r, w.Epoch != "", &t, random()), v.grant.token, v.tokens.reasonToWait("")
	return withStatus(code, out), nil
}

// joinAgain responds to a join with a ticket that is still alive; done is false if the ticket has ended.
func joinAgain(v *visit, w token.Waiting) (d decision, p *answer.Problem, done bool) {
	c, err := v.check(w, 0)
	if err != nil {
		return d, problemOf(err), true
	}
	switch s := &c.standing; s.State {
	case admission.Waiting:
		s.Renewed = true // the response to a join always has the token
	case admission.Admitted, admission.Active:
	default:
		return d, nil, false
	}
	d, p = ticketStatus(v, 200, &c)
	return d, p, true
}

// takenBy returns the time of a join, in seconds of Redis's clock. The order of a visitor who comes back is older than the join.
func (r *request) takenBy(a *arrival, order int64) int64 {
	if a.Return != nil {
		return r.now / 1e6
	}
	return r.takenAt(order)
}

// readBody reads the body of a request to an endpoint of the gateway.
func readBody(v *visit, limit int) ([]byte, *answer.Problem) {
	body, err := v.req.ReadBody(v.out.Body[:0], limit)
	switch {
	case errors.Is(err, wire.ErrBodyTooLarge):
		return nil, answer.BodyTooLarge.With("Send a body of at most " + strconv.Itoa(limit) + " bytes.")
	case errors.Is(err, wire.ErrBodyIdle):
		return nil, answer.RequestTimeout
	case err != nil:
		return nil, answer.BodyBroken
	}
	return body, nil
}

// joinBody is the body of a join.
type joinBody struct {
	nonce   string
	altcha  string // a proof of work
	captcha string // a solved CAPTCHA
}

// readJoin reads the body of a join: empty, or a JSON object.
func readJoin(v *visit) (joinBody, *answer.Problem) {
	limit := bodyMax
	if v.room.options.Guard.Captcha.Provider != "" {
		limit += 2 * guard.TokenMost
	}
	body, p := readBody(v, limit)
	if p != nil {
		return joinBody{}, p
	}
	return parseJoin(body)
}

// parseJoin parses {"nonce":"…","altcha":"…","captcha":"…"}.
func parseJoin(body []byte) (j joinBody, p *answer.Problem) {
	if len(body) == 0 || string(body) == "{}" {
		return j, nil
	}
	var members map[string]json.RawMessage
	if !utf8.Valid(body) || json.Unmarshal(body, &members) != nil || members == nil {
		return j, answer.InvalidBody.With("The body is not a JSON object.")
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		var into *string
		most, what := guard.TokenMost, "The captcha is a string of 1 to 8192 characters."
		switch name {
		case "nonce":
			into, most, what = &j.nonce, nonceMax, "The nonce is a string of 1 to 128 characters."
		case "altcha":
			into, most, what = &j.altcha, guard.ProofMost, "The altcha is a string of 1 to 1024 characters: base64 of JSON in ALTCHA's format."
		case "captcha":
			into = &j.captcha
		default:
			if len(name) > 64 {
				name = strings.ToValidUTF8(name[:64], "")
			}
			return joinBody{}, answer.InvalidBody.With("This member is unknown. Valid members: nonce, altcha, captcha.").At(name)
		}
		var text *string
		if json.Unmarshal(members[name], &text) != nil || text == nil || utf8.RuneCountInString(*text) > most || *text == "" {
			return joinBody{}, answer.InvalidBody.With(what).At(name)
		}
		*into = *text
	}
	return j, nil
}

// mix returns an id that proves the use of the client's nonce: the last eight bytes of the id are the first eight bytes of
// HMAC-SHA256(key: the first eight bytes of the id, message: the nonce).
func mix(id token.ID, nonce []byte) token.ID {
	h := hmac.New(sha256.New, id[:len(id)/2])
	h.Write(nonce)
	copy(id[len(id)/2:], h.Sum(nil))
	return id
}

func validKey(key []byte) bool {
	if len(key) < keyMin || len(key) > keyMax {
		return false
	}
	for _, c := range key {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// keyID returns the id of the ticket of an Idempotency-Key.
func keyID(v *visit, key []byte, generation int) token.ID {
	var g [8]byte
	binary.BigEndian.PutUint64(g[:], uint64(generation))
	return mix(v.derive("idempotency-key", []byte(client.Network(v.peer.Addr).String()), key, g[:]), key)
}

// joinByKey joins with an Idempotency-Key: with the ticket of the key or, if that has ended and fresh is set, with the next one. done
// is false if the key has no ticket and fresh is not set.
func joinByKey(v *visit, key []byte, fresh bool) (d decision, p *answer.Problem, done bool) {
	a := arrival{Arrival: admission.Arrival{Client: v.grant.client(), Keyed: true, Held: !fresh, Interval: pace.LongestFirst, Address: v.addressOf()}}
	for generation := range generations {
		a.ID = admission.ID(keyID(v, key, generation))
		s, refusal, err := v.room.store.Join(callsOf(v, a.ID), a.Arrival)
		switch {
		case err != nil && !fresh:
			return d, nil, false
		case err == nil && refusal == admission.Granted && s.State > admission.Active:
			continue
		}
		d, p = joined(v, joinCode(&s), &a, &s, refusal, err)
		return d, p, true
	}
	if fresh {
		return d, answer.IdempotencyKeySpent.At("Idempotency-Key"), true
	}
	return d, nil, false
}

// joinCode returns the status code of the response to a join: 201 for a new ticket.
func joinCode(s *admission.Standing) int {
	if s.New {
		return 201
	}
	return 200
}
