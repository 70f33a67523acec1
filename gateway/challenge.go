package gateway

import (
	"slices"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/gateway/route"
)

// pages are the pages of a room without and with the script of a guard: operators change live whether a place needs a proof of work, and
// a page without a guard has a stricter policy.
type pages struct {
	plain   *page.Page
	guarded *page.Page // nil: the operator's template has no place for the script
}

// newPages returns the pages of a room. A room whose configuration has a guard needs the guarded one.
func (o *Room) newPages() (p pages, err error) {
	plain := o.Page
	plain.Room, plain.Absence = o.ID, o.Policy.Absence
	guarded := plain
	guarded.Guard.Script = func(lang string) string { return route.Own + "/" + scripts().Name(lang) }
	guarded.Guard.Scripts, guarded.Guard.Frames = o.Guard.Captcha.Sources()
	if p.guarded, err = page.New(guarded); err != nil && o.Guard.mayRequireSolution() {
		return p, err
	}
	if err != nil {
		p.guarded = nil
	}
	p.plain, err = page.New(plain)
	return p, err
}

// mayRequireSolution reports whether the guard of the configuration can require a proof or a CAPTCHA.
func (g *Guard) mayRequireSolution() bool { return g.Proof != ProofNone || g.Captcha.Provider != "" }

// page returns the page that fits the challenge in force.
func (r *room) page() *page.Page {
	if r.pages.guarded != nil && r.mayRequireSolution() {
		return r.pages.guarded
	}
	return r.pages.plain
}

// levels returns the levels of the challenge that operators can set.
func (p *pages) levels() []string {
	if p.guarded == nil {
		return []string{ProofNone}
	}
	return []string{ProofNone, ProofAuto, ProofAlways, ProofHardest}
}

// challenge returns the level of the challenge in force.
func (r *room) challenge() string {
	level := r.options.Guard.Proof
	if s := r.queue.Snapshot(); slices.Contains(s.Live, admission.LiveChallenge) { // else a reload is in force at once
		level = s.Policy.Challenge
	}
	if r.pages.guarded == nil { // the template was changed after an operator had set the level
		return ProofNone
	}
	return level
}

// mayRequireSolution reports whether a join can require a proof or a CAPTCHA at the level in force.
func (r *room) mayRequireSolution() bool {
	return r.options.Guard.Captcha.Provider != "" || r.challenge() != ProofNone
}

// requiresSolution reports whether a join requires a proof or a CAPTCHA now.
func (r *room) requiresSolution() bool {
	return r.options.Guard.Captcha.Provider != "" || r.requiresProof()
}

// storeAway is the age of a snapshot at which the length of the queue counts as unknown.
const storeAway = 10 * time.Second

// requiresProof reports whether a join requires a proof of work now.
func (r *room) requiresProof() bool {
	switch r.challenge() {
	case ProofNone:
		return false
	case ProofAlways, ProofHardest:
		return true
	}
	f := r.forecaster.Room()
	s := f.Snapshot
	return !s.Known || s.Waiting+r.queue.Arriving() > 0 || f.JoinRate > r.options.Guard.Effort.JoinRate || r.queue.Age() > storeAway ||
		s.Policy.Method == admission.Lottery && s.Policy.OpensAt > r.queue.RedisNow()
}

// effort returns the highest number of tries of a proof that is made now.
func (r *room) effort() int64 {
	if r.challenge() == ProofHardest {
		return r.options.Guard.Effort.Most
	}
	return r.options.Guard.Effort.At(r.forecaster.Room().JoinRate)
}

// proofEffort returns the highest number of tries of a proof now; 0 while no proof is required.
func (r *room) proofEffort() int64 {
	if !r.requiresProof() {
		return 0
	}
	return r.effort()
}
