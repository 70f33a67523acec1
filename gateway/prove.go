package gateway

import (
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/token"
)

// What becomes of proofs and of CAPTCHA answers, for their metrics.
var (
	proofOutcomes   = []string{"accepted", "repeated", "invalid", "expired", "spent"}
	captchaOutcomes = []string{"passed", "failed", "unavailable"}
)

// stateProof is the page's while something has to be done before a place is given.
const stateProof = "proof"

// scripts are what guarded pages load, in each language.
var scripts = sync.OnceValue(func() *guard.Scripts {
	texts, err := page.GuardTexts()
	if err != nil {
		panic(err) // they are embedded, and a test reads them
	}
	return guard.NewScripts(texts)
})

// asks says whether a place may cost anything in this room.
func (g *Guard) asks() bool {
	return g.Proof != "" && g.Proof != ProofNone || g.Captcha.Provider != ""
}

// storeAway is the age of a snapshot from which on nobody knows how many wait.
const storeAway = 10 * time.Second

// asksProof says whether a place costs a proof of work now.
func (r *room) asksProof() bool {
	switch {
	case r.proofs == nil:
		return false
	case r.options.Guard.Proof == ProofAlways:
		return true
	}
	o := r.outlook()
	s := o.snapshot
	return !s.Known || s.Waiting+r.line.Arriving() > 0 || o.joining > r.options.Guard.Effort.JoinRate || r.line.Age() > storeAway ||
		s.Policy.Method == admission.Lottery && s.Policy.OpensAt > r.line.RedisNow()
}

// asks says whether a place costs anything now.
func (r *room) asks() bool { return r.options.Guard.Captcha.Provider != "" || r.asksProof() }

// numberNow is how many tries a proof takes at most now; 0 while none is asked for.
func (r *room) numberNow() int64 {
	if !r.asksProof() {
		return 0
	}
	return r.options.Guard.Effort.At(r.outlook().joining)
}

// askFirst answers somebody who may have a place once something is done for it. lost is why a former place is gone.
func (v *visit) askFirst(lost string) {
	if v.shuts() {
		return
	}
	r := v.room
	v.refusedJoin(v.missing())
	if v.who != client.Navigation {
		v.refuseUnproved()
		return
	}
	policy := &r.line.Snapshot().Policy
	v.outcome = waiting
	view := page.View{State: stateProof, Reason: lost, RefreshAfter: 30, Message: policy.Message, Paused: policy.Paused}
	v.showPage(r.options.PageStatus, &view)
}

// shuts refuses where the room gives no places now, before anybody works for one in vain.
func (v *visit) shuts() bool {
	why := v.room.line.Refuses()
	if why != admission.Granted {
		v.reject(why, nil)
	}
	return why != admission.Granted
}

func (v *visit) missing() string {
	if v.room.asksProof() {
		return "proof_missing"
	}
	return "captcha_missing"
}

// refuseUnproved answers a client that reads JSON, and says where it finds what to do.
func (v *visit) refuseUnproved() {
	p := problemCaptchaNeeded
	if v.room.asksProof() {
		p = problemProofNeeded
	}
	v.hint = route.Own + "/" + v.room.id + "/challenge"
	v.refuse(p, "", "")
	v.res.Header.Set("X-Waiting-Room", stateProof)
}

// serveChallenge gives what has to be done for a place: a challenge as ALTCHA has it, and who makes the CAPTCHA. The
// challenge is not bound to an address: whoever farms proofs fetches challenges through the addresses that use them, and a
// telephone that changes networks while it works would have worked for nothing.
func (v *visit) serveChallenge() {
	r := v.room
	if !r.options.Guard.asks() {
		v.refuse(problemNoChallenge, "", "")
		return
	}
	var out struct {
		*guard.Challenge
		Captcha *captchaKey `json:"captcha,omitempty"`
	}
	if r.proofs != nil {
		c := v.proofs().Challenge(r.options.Guard.Effort.At(r.outlook().joining), v.now/1e6+guard.Life)
		out.Challenge = &c
		r.metrics.challenges.Inc()
	}
	if c := &r.options.Guard.Captcha; c.Provider != "" {
		out.Captcha = &captchaKey{c.Provider, c.SiteKey}
	}
	text, err := json.Marshal(&out)
	if err != nil {
		v.fail(err)
		return
	}
	v.outcome = waiting
	v.body = append(v.body[:0], text...)
	v.begin(200, typeJSON)
	v.end()
}

type captchaKey struct {
	Provider string `json:"provider"`
	SiteKey  string `json:"site_key"`
}

// prove checks what a join brings for its place, and joins; with the key of a place that is held it finds that for nothing.
// False: nothing is asked for and nothing was brought; the join goes on.
func (v *visit) prove(j *joining, key []byte) (answered bool) {
	r := v.room
	if r.proofs == nil {
		j.altcha = ""
	}
	captcha := &r.options.Guard.Captcha
	proof := j.altcha != ""
	if !proof && r.asksProof() || captcha.Provider != "" && j.captcha == "" {
		if len(key) > 0 && v.joinKeyed(key, false) {
			return true
		}
		v.refuseMissing(proof || !r.asksProof())
		return true
	}
	if !proof && captcha.Provider == "" {
		return false
	}
	var id token.ID
	if proof {
		challenge, ok := v.solved(j)
		if !ok {
			return true
		}
		id = token.ID(derive(v.state.options.IDKey, "proof", r.id, challenge)[:len(id)])
	} else {
		id = token.ID(derive(v.state.options.IDKey, "captcha", r.id, j.captcha)[:len(id)])
	}
	a := admission.Arrival{ID: admission.ID(id), Client: v.client(), Keyed: true, Interval: pace.LongestFirst, Address: v.address()}
	if captcha.Provider != "" {
		if v.forges(forgedAnswer) {
			v.unjudged(guard.ErrRefused)
			return true
		}
		a.Held, a.Remember = true, true // its provider accepts an answer once
		if s, refusal, err := r.line.Join(v.g.life, a); err == nil {
			v.proved(&a, proof, s, refusal, nil)
			return true
		}
		if !v.person(j.captcha) {
			return true
		}
		a.Held = false
	}
	s, refusal, err := r.line.Join(v.g.life, a)
	v.proved(&a, proof, s, refusal, err)
	return true
}

// refuseMissing answers a join that lacks the answer to a CAPTCHA, or a proof.
func (v *visit) refuseMissing(captcha bool) {
	if v.shuts() {
		return
	}
	if !captcha {
		v.refusedJoin("proof_missing")
		v.refuseUnproved()
		return
	}
	v.refusedJoin("captcha_missing")
	v.hint = route.Own + "/" + v.room.id + "/challenge"
	v.refuse(problemCaptchaNeeded, "", "captcha")
}

// proofs are those of the room; of the account that the request names, where there is one. An account's place has the
// account's id, so what keeps a proof from being spent for many is that it verifies for one.
func (v *visit) proofs() *guard.Proofs {
	if v.account.state != accountKnown {
		return v.room.proofs
	}
	return guard.NewProofs(derive(v.state.options.IDKey, "account proof", v.room.id, string(v.account.base[:])))
}

// solved gives the challenge that a join's proof solves, or answers that it does not.
func (v *visit) solved(j *joining) (challenge string, ok bool) {
	challenge, err := v.proofs().Verify(j.altcha, v.now/1e6)
	switch {
	case errors.Is(err, guard.ErrExpired):
		v.refuseProof("expired", problemProofLate)
	case err != nil:
		v.refuseProof("invalid", problemProof)
	default:
		return challenge, true
	}
	return "", false
}

// joinAccount gives the account's place. One that it has costs nothing more, whatever device asks.
func (v *visit) joinAccount(j *joining) {
	a, ok := v.arrival()
	if !ok {
		return
	}
	if _, in := v.findPass(); !in {
		v.comeBack(&a)
	}
	if v.room.asks() {
		held := a
		held.Held = true
		s, refusal, err := v.room.line.Join(v.g.life, held)
		if err != nil || refusal != admission.Granted || s.State != admission.Ended {
			v.joined(200, &held, s, refusal, err)
			return
		}
		if a.Proof, ok = v.earned(j); !ok {
			return
		}
	}
	s, refusal, err := v.room.line.Join(v.g.life, a)
	if a.Proof != (admission.ID{}) && err == nil && refusal == admission.Granted {
		if s.State == admission.Ended {
			v.refuseProof("spent", problemProofSpent)
			return
		}
		v.room.metrics.proofs["accepted"].Inc()
	}
	v.joined(codeOf(&s), &a, s, refusal, err)
}

// earned checks what a join brings for an account's new place, and gives the id of its proof; zero: none was asked for. False:
// it has answered.
func (v *visit) earned(j *joining) (id admission.ID, ok bool) {
	captcha := v.room.options.Guard.Captcha.Provider != ""
	proof := v.room.asksProof()
	switch {
	case proof && j.altcha == "", captcha && j.captcha == "":
		v.refuseMissing(!proof || j.altcha != "")
		return id, false
	case proof:
		challenge, ok := v.solved(j)
		if !ok {
			return id, false
		}
		id = admission.ID(derive(v.state.options.IDKey, "proof", v.room.id, challenge)[:len(id)])
	}
	return id, !captcha || v.person(j.captcha)
}

func (v *visit) refuseProof(outcome string, p *problem) {
	v.room.metrics.proofs[outcome].Inc()
	v.refusedJoin("proof_invalid")
	v.refuse(p, "", "altcha")
}

// proved answers a join by a proof: the id of its place is the proof's, so there is one, however often and by whomever it is sent.
func (v *visit) proved(a *admission.Arrival, proof bool, s admission.Standing, refusal admission.Refusal, err error) {
	if err == nil && refusal == admission.Granted {
		switch {
		case s.State > admission.Active:
			v.refuseProof("spent", problemProofSpent)
			return
		case proof && s.New:
			v.room.metrics.proofs["accepted"].Inc()
		case proof:
			v.room.metrics.proofs["repeated"].Inc()
		}
	}
	v.joined(codeOf(&s), a, s, refusal, err)
}

// person asks the provider about a CAPTCHA's answer. Where it does not count, it has answered.
func (v *visit) person(answer string) bool {
	r := v.room
	c := &r.options.Guard.Captcha
	err := v.g.captcha.Verify(v.g.life, c, answer, v.peer.Addr)
	switch {
	case err == nil:
		r.metrics.captcha["passed"].Inc()
		return true
	case errors.Is(err, guard.ErrFailed):
		v.forged(forgedAnswer)
		r.metrics.captcha["failed"].Inc()
		v.refusedJoin("captcha_failed")
		v.fault(slog.LevelInfo, "a captcha's answer does not count", problemCaptcha.code, r.id, "room", r.id, "error", err)
		v.refuse(problemCaptcha, "", "captcha")
		return false
	}
	return v.unjudged(err)
}

// unjudged reports whether somebody counts as a person of whose answer there is no judgement; where not, it has answered.
func (v *visit) unjudged(err error) bool {
	r := v.room
	c := &r.options.Guard.Captcha
	r.metrics.captcha["unavailable"].Inc()
	v.fault(slog.LevelWarn, "the captcha's provider gave no judgement", problemCaptchaAway.code, r.id, "room", r.id, "on_fail", map[bool]string{true: "open", false: "closed"}[c.Open], "error", err)
	if c.Open && !errors.Is(err, guard.ErrRefused) { // a flood of answers must not open the room
		return true
	}
	v.refusedJoin("captcha_unavailable")
	v.show(problemCaptchaAway, "", "")
	return false
}

// serveScript gives the script of a guarded page; false where there is none of that name.
func (v *visit) serveScript(name string) bool {
	script, forever, ok := scripts().Find(name)
	if !ok {
		return false
	}
	if !v.req.Is("GET") && !v.req.Is("HEAD") {
		v.refuse(problemMethod, "", "")
		v.res.Header.Set("Allow", "GET, HEAD")
		return true
	}
	v.outcome = proxied
	v.body = append(v.body[:0], script...)
	h := v.begin(200, "text/javascript; charset=utf-8")
	h.Del("Vary")
	h.Set("Content-Security-Policy", guard.WorkerPolicy)
	if forever {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	v.end()
	return true
}
