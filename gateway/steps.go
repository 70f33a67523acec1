package gateway

import (
	"errors"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/token"
)

// needsPermit reports whether the request takes a step that needs a permit.
func needsPermit(v *visit) bool { return stepOf(v) != nil }

// stepOf returns the step that the request takes, nil if it takes none.
func stepOf(v *visit) *route.Step {
	steps := v.room.rules.steps
	for i := range steps {
		if steps[i].Matches(v.req, &v.readings) {
			return &steps[i]
		}
	}
	return nil
}

// Reasons to reject a permit with a valid signature.
var (
	errOtherSession = errors.New("the permit belongs to another session")
	errOtherPath    = errors.New("the permit is for another path")
	errOtherMethod  = errors.New("the permit is for another method")
)

// checkPermit checks the permit of a request that takes a step: it has to be for exactly its session, path and method. It returns the permit
// if the origin is to receive it, and a problem if the step is refused.
func checkPermit(v *visit, session token.ID) (forward []byte, p *answer.Problem) {
	step := stepOf(v)
	if step == nil {
		return nil, nil
	}
	raw, why := findPermit(v, session)
	if why != nil {
		v.kind = client.KindOf(v.req)
		return nil, refuseStep(v, why)
	}
	v.room.metrics.Permits["accepted"].Inc()
	if step.Forward {
		return raw, nil
	}
	return nil, nil
}

// Reasons to refuse a step without looking at permits.
var (
	errNoPermit   = errors.New("no permit")
	errAmbiguous  = errors.New("servers read the path in several ways")
	errOverridden = errors.New("a header field overrides the method")
)

// findPermit returns the valid permit of the request, from the header field or the cookies, or the reason why it has none.
func findPermit(v *visit, session token.ID) (raw []byte, why error) {
	var list [tokensMax][]byte
	tokens := list[:0]
	if raw := v.req.Peek("x-waiting-room-permit"); len(raw) > 0 {
		tokens = append(tokens, raw)
	}
	tokens = append(tokens, v.jar.Permit.All()...)
	path, exact := route.AppendExact(v.memory[1][:0], route.PathOf(v.target), &v.readings)
	v.memory[1] = path
	switch {
	case len(tokens) == 0:
		return nil, errNoPermit
	case !exact:
		return nil, errAmbiguous
	case client.OverridesMethod(v.req):
		return nil, errOverridden
	}
	for _, raw := range tokens {
		why = verifyPermit(v, raw, session, path)
		if why == nil {
			return raw, nil
		}
		if errors.Is(why, token.ErrSignature) || errors.Is(why, token.ErrExpired) {
			break // another signature check can cost as much as ten requests
		}
	}
	return nil, why
}

// verifyPermit returns the reason why a permit is not valid for this request, or nil. It checks the signature, which is expensive, last:
// clients send the permits of other steps too.
func verifyPermit(v *visit, raw []byte, session token.ID, path []byte) error {
	ring := v.g.cache.Ring()
	switch sameSession, samePath, sameMethod := ring.ComparePermit(raw, session, path, v.req.Method()); {
	case !sameSession:
		return errOtherSession
	case !samePath:
		return errOtherPath
	case !sameMethod:
		return errOtherMethod
	}
	_, err := ring.VerifyPermit(raw, v.room.id, v.now/1e6)
	if err != nil {
		v.g.metrics.RejectedTokens[token.Reason(err)].Inc()
	}
	return err
}

// refuseStep returns the problem of a refused step. For a browser it has a link into the room, for a program the remedy.
func refuseStep(v *visit, why error) *answer.Problem {
	p, result := answer.PermitInvalid, "invalid"
	if errors.Is(why, errNoPermit) {
		p, result = answer.PermitRequired, "missing"
	}
	v.room.metrics.Permits[result].Inc()
	if v.kind == client.Navigation {
		q := *p
		q.Link = v.room.rules.start
		return &q
	}
	remedy := " POST " + route.Own + "/" + v.room.id + `/permits {"for":"<path>","method":"<method>"} with the pass, and send the permit as X-Waiting-Room-Permit within 60 seconds.`
	switch {
	case errors.Is(why, errNoPermit):
		return p.With("This step needs a permit of this session for exactly this path and method." + remedy)
	case errors.Is(why, errAmbiguous):
		return p.With("Servers read this path in several ways, so no permit is valid for it. Send the path without dot segments, empty segments, parameters and unneeded escapes.")
	case errors.Is(why, errOverridden):
		return p.With("A header field overrides the method, so no permit is valid for this request. Send it with its own method.")
	case errors.Is(why, token.ErrExpired):
		return p.With("The permit has expired." + remedy)
	case errors.Is(why, errOtherSession), errors.Is(why, errOtherPath), errors.Is(why, errOtherMethod):
		return p.With("T" + why.Error()[1:] + "." + remedy)
	}
	return p.With("This is not a valid permit of this room." + remedy)
}

// rules are the rules of a room for single paths.
type rules struct {
	bypass []route.Bypass
	steps  []route.Step // need a permit
	start  string       // the first path of the room that can be linked to and needs no permit; empty: none
}

// newRules compiles the rules of a room.
func newRules(o *Room) (r rules, err error) {
	if r.bypass, err = route.NewBypass(o.Bypass); err != nil {
		return r, err
	}
	if r.steps, err = route.NewSteps(o.Permits); err != nil {
		return r, err
	}
	r.start = r.startOf(o.Paths)
	return r, nil
}

// startOf returns the first of the paths that can be linked to and needs no permit.
func (r *rules) startOf(paths []string) string {
	for _, path := range paths {
		if !isPlainPath(path) {
			continue
		}
		var readings route.Readings
		readings.Set([]byte(path))
		if !slices.ContainsFunc(r.steps, func(s route.Step) bool { return s.MatchesLink(&readings) }) {
			return path
		}
	}
	return ""
}

// isPlainPath reports whether a path of the configuration can be linked to.
func isPlainPath(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") && !strings.ContainsAny(path, "\\\r\n")
}
