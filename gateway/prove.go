package gateway

import (
	"encoding/json"
	"errors"
	"log/slog"
	"sync"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/token"
)

// scripts are the scripts of guarded pages, in each language.
var scripts = sync.OnceValue(func() *guard.Scripts {
	texts, err := page.GuardTexts()
	if err != nil {
		panic(err) // they are embedded, and a test reads them
	}
	return guard.NewScripts(texts)
})

// requireSolution responds to a client that has to solve a proof of work or CAPTCHA before it receives a ticket. lost is the reason why a
// former ticket has ended, or empty.
func requireSolution(v *visit, lost string) (decision, *answer.Problem) {
	if p := refusesAll(v); p != nil {
		return decision{}, p
	}
	r := v.room
	if r.requiresProof() {
		v.room.countRefusedJoin("proof_missing")
	} else {
		v.room.countRefusedJoin("captcha_missing")
	}
	if v.kind != client.Navigation {
		return decision{}, v.room.solutionProblem()
	}
	policy := &r.queue.Snapshot().Policy
	v.out.Object = answer.Status{State: answer.StateProof, Reason: lost, Refresh: 30, Message: policy.Message, Paused: policy.Paused}
	return decision{action: doWait, outcome: waiting, ground: onChallenge, status: &v.out.Object}, nil
}

// refusesAll returns the problem because of which the room refuses all joins now, so that no client solves a proof in vain.
func refusesAll(v *visit) *answer.Problem {
	if why := v.room.queue.Refuses(); why != admission.Granted {
		return v.reject(why, nil, false)
	}
	return nil
}

// solutionProblem returns the problem of an API client that has to solve a challenge first, with the path of the challenge.
func (r *room) solutionProblem() *answer.Problem {
	p := answer.CaptchaRequired
	if r.requiresProof() {
		p = answer.ProofRequired
	}
	return p.Solving(r.challengePath()).In(answer.StateProof)
}

// serveChallenge sends the challenge of a ticket: a proof of work in the format of ALTCHA, and the provider of the CAPTCHA. The
// challenge is not bound to an address. A binding would not stop a farm of solvers, which can fetch challenges through the addresses
// that use them, and would waste the work of a phone that changes networks.
func serveChallenge(v *visit) (decision, *answer.Problem) {
	r := v.room
	if !r.mayRequireSolution() {
		return decision{}, answer.NoChallenge
	}
	type captchaKey struct {
		Provider string `json:"provider"`
		SiteKey  string `json:"site_key"`
	}
	var out struct {
		*guard.Challenge
		Captcha *captchaKey `json:"captcha,omitempty"`
	}
	if r.challenge() != ProofNone {
		out.Challenge = new(proofsFor(v).Challenge(r.effort(), v.now/1e6+guard.Life))
		r.metrics.Challenges.Inc()
	}
	if c := &r.options.Guard.Captcha; c.Provider != "" {
		out.Captcha = &captchaKey{c.Provider, c.SiteKey}
	}
	text, err := json.Marshal(&out)
	if err != nil {
		return decision{}, problemOf(err)
	}
	v.out.Body = append(v.out.Body[:0], text...)
	return document(waiting, 200, answer.TypeJSON), nil
}

// joinProved checks the proof and the CAPTCHA of a join, and joins. An existing ticket of an Idempotency-Key needs neither. done is
// false if neither is required and neither was sent.
func joinProved(v *visit, body *joinBody, key []byte) (d decision, p *answer.Problem, done bool) {
	r := v.room
	if r.challenge() == ProofNone {
		body.altcha = ""
	}
	captcha := r.options.Guard.Captcha.Provider != ""
	proof := body.altcha != ""
	if !proof && r.requiresProof() || captcha && body.captcha == "" {
		if len(key) > 0 {
			if d, p, done := joinByKey(v, key, false); done {
				return d, p, true
			}
		}
		return d, refuseMissing(v, proof || !r.requiresProof()), true
	}
	if !proof && !captcha {
		return d, nil, false
	}
	id := solutionID(v, "captcha", body.captcha)
	if proof {
		challenge, p := verifyProof(v, body)
		if p != nil {
			return d, p, true
		}
		id = solutionID(v, "proof", challenge)
	}
	a := arrival{Arrival: admission.Arrival{ID: id, Client: v.grant.client(), Keyed: true, Interval: pace.LongestFirst, Address: v.addressOf()}}
	if captcha {
		if v.g.meters.forges(&v.request, forgedAnswer) {
			return d, unverified(v, guard.ErrRefused), true
		}
		a.Held, a.Remember = true, true // the provider accepts a solution only once
		if s, refusal, err := r.store.Join(callsOf(v, a.ID), a.Arrival); err == nil {
			d, p = joinedByProof(v, &a, proof, s, refusal, nil)
			return d, p, true
		}
		if p := verifyCaptcha(v, body.captcha); p != nil {
			return d, p, true
		}
		a.Held = false
	}
	s, refusal, err := r.store.Join(callsOf(v, a.ID), a.Arrival)
	d, p = joinedByProof(v, &a, proof, s, refusal, err)
	return d, p, true
}

// solutionID returns the id of the ticket of a solution. A solution makes one ticket, however often it is sent.
func solutionID(v *visit, domain, solution string) admission.ID {
	return admission.ID(token.ID(v.derive(domain, []byte(solution))))
}

// joinedByProof responds to a join whose ticket has the id of a solution.
func joinedByProof(v *visit, a *arrival, proof bool, s admission.Standing, refusal admission.Refusal, err error) (decision, *answer.Problem) {
	if err == nil && refusal == admission.Granted {
		switch {
		case s.State > admission.Active:
			return decision{}, v.room.refuseProof("spent", answer.ProofSpent)
		case proof && s.New:
			v.room.metrics.Proofs["accepted"].Inc()
		case proof:
			v.room.metrics.Proofs["repeated"].Inc()
		}
	}
	return joined(v, joinCode(&s), a, &s, refusal, err)
}

// refuseMissing returns the problem of a join that lacks a solved CAPTCHA, or a proof.
func refuseMissing(v *visit, captcha bool) *answer.Problem {
	if p := refusesAll(v); p != nil {
		return p
	}
	if !captcha {
		v.room.countRefusedJoin("proof_missing")
		return v.room.solutionProblem()
	}
	v.room.countRefusedJoin("captcha_missing")
	return answer.CaptchaRequired.Solving(v.room.challengePath()).At("captcha")
}

// proofsFor returns the proofs of the room or, in a request with an account, of that account in the room. The ticket of an account
// has the account's id, so a proof must verify for one account only: otherwise it could be spent for many.
func proofsFor(v *visit) *guard.Proofs {
	if v.account.state != accountKnown {
		return v.room.proofs
	}
	return guard.NewProofs(sumOf(v.state.options.IDKey, "account proof", v.room.id, v.account.base[:]))
}

// verifyProof returns the challenge that a join's proof solves.
func verifyProof(v *visit, body *joinBody) (challenge string, p *answer.Problem) {
	challenge, err := proofsFor(v).Verify(body.altcha, v.now/1e6)
	switch {
	case errors.Is(err, guard.ErrExpired):
		return "", v.room.refuseProof("expired", answer.ProofExpired)
	case err != nil:
		return "", v.room.refuseProof("invalid", answer.ProofInvalid)
	}
	return challenge, nil
}

func (r *room) refuseProof(outcome string, p *answer.Problem) *answer.Problem {
	r.metrics.Proofs[outcome].Inc()
	r.countRefusedJoin("proof_invalid")
	return p.At("altcha")
}

// joinAccount joins with the ticket of an account. An existing ticket needs no further proof, on any device.
func joinAccount(v *visit, body *joinBody) (decision, *answer.Problem) {
	a, p := newArrival(v)
	if p != nil {
		return decision{}, v.refuseAccount(p)
	}
	if _, in := v.tokens.findPass(); !in {
		addEndedPass(v, &a)
	}
	if v.room.requiresSolution() {
		held := a
		held.Held = true
		s, refusal, err := v.room.store.Join(callsOf(v, held.ID), held.Arrival)
		if err != nil || refusal != admission.Granted || s.State != admission.Ended {
			return joined(v, 200, &held, &s, refusal, err)
		}
		if a.Proof, p = checkSolutions(v, body); p != nil {
			return decision{}, p
		}
	}
	s, refusal, err := v.room.store.Join(callsOf(v, a.ID), a.Arrival)
	if a.Proof != (admission.ID{}) && err == nil && refusal == admission.Granted {
		if s.State == admission.Ended {
			return decision{}, v.room.refuseProof("spent", answer.ProofSpent)
		}
		v.room.metrics.Proofs["accepted"].Inc()
	}
	return joined(v, joinCode(&s), &a, &s, refusal, err)
}

// checkSolutions checks the proof and the CAPTCHA of a join for a new ticket, and returns the id of the proof; zero: none is required.
func checkSolutions(v *visit, body *joinBody) (id admission.ID, p *answer.Problem) {
	captcha := v.room.options.Guard.Captcha.Provider != ""
	proof := v.room.requiresProof()
	switch {
	case proof && body.altcha == "", captcha && body.captcha == "":
		return id, refuseMissing(v, !proof || body.altcha != "")
	case proof:
		challenge, p := verifyProof(v, body)
		if p != nil {
			return id, p
		}
		id = solutionID(v, "proof", challenge)
	}
	if captcha {
		p = verifyCaptcha(v, body.captcha)
	}
	return id, p
}

// verifyCaptcha checks a solved CAPTCHA with the provider.
func verifyCaptcha(v *visit, solution string) *answer.Problem {
	r := v.room
	err := v.g.captcha.Verify(v.g.life.ctx, &r.options.Guard.Captcha, solution, v.peer.Addr)
	switch {
	case err == nil:
		r.metrics.Captcha["passed"].Inc()
		return nil
	case errors.Is(err, guard.ErrFailed):
		v.g.meters.forged(&v.request, forgedAnswer)
		r.metrics.Captcha["failed"].Inc()
		v.room.countRefusedJoin("captcha_failed")
		v.fault(slog.LevelInfo, "the CAPTCHA provider rejected a solution; the join is refused", answer.CaptchaFailed.Code, r.id, "room", r.id, "error", err)
		return answer.CaptchaFailed.At("captcha")
	}
	return unverified(v, err)
}

// unverified returns the problem of a CAPTCHA solution that could not be checked; nil if the room accepts it (on_fail: open).
func unverified(v *visit, err error) *answer.Problem {
	r := v.room
	r.metrics.Captcha["unavailable"].Inc()
	code := answer.CaptchaUnavailable.Code
	if r.options.Guard.Captcha.Open && !errors.Is(err, guard.ErrRefused) { // a flood of solutions must not open the room
		v.fault(slog.LevelWarn, "cannot check a CAPTCHA solution; the join is accepted, because captcha.on_fail is open", code+" accepted", r.id, "room", r.id, "error", err)
		return nil
	}
	v.fault(slog.LevelWarn, "cannot check a CAPTCHA solution; the join is refused", code, r.id, "room", r.id, "error", err)
	v.room.countRefusedJoin(code)
	return answer.CaptchaUnavailable.WithoutLog()
}
