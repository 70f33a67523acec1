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
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/token"
)

const (
	bodyLimit = 4 << 10 // bytes of a request to an endpoint of ours
	nonceMax  = 128     // characters
	keyMin    = 22
	keyMax    = 128
	// generations is how often a key may be used again after its ticket has ended, within the time that ended tickets
	// are remembered.
	generations = 64
)

// serveTickets takes a place in line, or gives one up.
func (v *visit) serveTickets() {
	if v.req.Is("DELETE") {
		v.leave()
		return
	}
	body, ok := v.joinBody()
	if !ok {
		return
	}
	if w, live, _ := v.findTicket(true); live {
		if v.again(&w) {
			return
		}
	}
	v.promised, v.used = wait{}, 0 // of a ticket that is over
	open := v.room.line.Snapshot().Policy.Open()
	if v.account.state == accountKnown && !open {
		v.joinAccount(&body)
		return
	}
	key := v.req.Peek("idempotency-key")
	if len(key) > 0 && !validKey(key) {
		v.refuse(problemIdempotency, "", "Idempotency-Key")
		return
	}
	if open {
		v.tellOpen(201, v.room.outlook(), &token.Waiting{}, 0)
		return
	}
	a, ok := v.arrival()
	if !ok || v.joinBack(&body, a) {
		return
	}
	if v.room.options.Guard.asks() && v.prove(&body, key) {
		return
	}
	if len(key) > 0 {
		v.joinKeyed(key, true)
		return
	}
	if body.nonce != "" {
		a.ID = admission.ID(mixed(token.ID(a.ID), []byte(body.nonce)))
	}
	s, refusal, err := v.room.line.Join(v.g.life, a)
	v.joined(201, &a, s, refusal, err)
}

// joined answers a join.
func (v *visit) joined(code int, a *admission.Arrival, s admission.Standing, refusal admission.Refusal, err error) {
	switch {
	case err != nil:
		v.fail(err)
		return
	case refusal != admission.Granted:
		v.reject(refusal, &s)
		return
	}
	o := v.room.outlook()
	switch s.State {
	case admission.Active:
		v.atOnce(&s)
		w := token.Waiting{ID: token.ID(s.Ticket.ID), IssuedAt: s.AdmittedAt / 1e6, Order: s.AdmittedAt}
		v.outcome = letIn
		state := stateAdmitted
		if code == 200 {
			state = stateActive
		}
		v.tellAdmitted(code, &w, &s, state)
		return
	case admission.Admitted:
		// Its turn has come, and a poll will claim it. A repeated join does not: it may be one that was held up on its way,
		// made before its client had the nonce with which it polls, which would find its ticket spent.
		v.remember()
		w := v.sign(&s.Ticket, v.joinedWith(a, s.Ticket.Order))
		out := v.status(o, &w, &prospect{}, stateWaiting)
		out.refresh, out.token = 1, v.token
		v.json(code, &out)
		return
	}
	v.remember()
	p := v.room.prospect(o, s.Ticket.Order)
	if code == 201 { // a repeat joined before, and was told something else then
		v.promised = p.wait
	}
	w := v.sign(&s.Ticket, v.joinedWith(a, s.Ticket.Order))
	out := v.status(o, &w, &p, o.stateOf(w.Order))
	out.refresh, out.token = v.room.firstPoll(o, &w, &p, v.g.random()), v.token
	v.json(code, &out)
}

// again answers a join that brings a ticket, if that is still alive.
func (v *visit) again(w *token.Waiting) bool {
	v.adopt(w)
	o := v.room.outlook()
	p := v.room.prospect(o, w.Order)
	seconds := p.poll(v.g.random())
	t := v.ticket(w, seconds, p.wait)
	s, err := v.room.line.Check(v.g.life, t)
	if err != nil {
		v.fail(err)
		return true
	}
	switch s.State {
	case admission.Waiting:
		s.Renewed = true // a join's answer always carries the token
	case admission.Admitted, admission.Active:
	default:
		return false
	}
	v.tell(200, o, w, &s, &t, seconds)
	return true
}

// readBody reads the body of a request to an endpoint of ours. Where it cannot, it has answered.
func (v *visit) readBody(limit int) (body []byte, ok bool) {
	body, err := v.req.ReadBody(v.body[:0], limit)
	switch {
	case errors.Is(err, proxy.ErrBodyTooLarge):
		v.refuse(problemBodyTooLarge, "A body here has at most "+strconv.Itoa(limit)+" bytes.", "")
	case errors.Is(err, proxy.ErrBodyIdle):
		v.refuse(problemRequestSlow, "", "")
	case err != nil:
		v.refuse(problemBodyBroken, "", "")
	default:
		return body, true
	}
	return nil, false
}

// joining is the body of a join.
type joining struct {
	nonce   string
	altcha  string // a proof of work
	captcha string // an answer
}

// joinBody reads the body of a join: nothing, or a JSON object. Where it cannot, it has answered.
func (v *visit) joinBody() (j joining, ok bool) {
	limit := bodyLimit
	if v.room.options.Guard.Captcha.Provider != "" {
		limit += 2 * guard.TokenMost
	}
	body, ok := v.readBody(limit)
	if !ok {
		return joining{}, false
	}
	j, field, detail := parseJoin(body)
	if detail != "" {
		v.refuse(problemBody, detail, field)
		return joining{}, false
	}
	return j, true
}

// parseJoin reads {"nonce":"…","altcha":"…","captcha":"…"}; detail, when not empty, says what is wrong, and field where.
func parseJoin(body []byte) (j joining, field, detail string) {
	if len(body) == 0 || string(body) == "{}" {
		return joining{}, "", ""
	}
	var members map[string]json.RawMessage
	if !utf8.Valid(body) || json.Unmarshal(body, &members) != nil || members == nil {
		return joining{}, "", "The body is not a JSON object."
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		var into *string
		most, what := guard.TokenMost, "The answer is a string of 1 to 8192 characters."
		switch name {
		case "nonce":
			into, most, what = &j.nonce, nonceMax, "The nonce is a string of 1 to 128 characters."
		case "altcha":
			into, most, what = &j.altcha, guard.ProofMost, "The proof is a string of 1 to 1024 characters, base64 of JSON as ALTCHA has it."
		case "captcha":
			into = &j.captcha
		default:
			if len(name) > 64 {
				name = strings.ToValidUTF8(name[:64], "")
			}
			return joining{}, name, "There is no field of this name; those that there are: nonce, altcha, captcha."
		}
		var text *string
		if json.Unmarshal(members[name], &text) != nil || text == nil || utf8.RuneCountInString(*text) > most || *text == "" {
			return joining{}, name, what
		}
		*into = *text
	}
	return j, "", ""
}

// mixed is an id in which the client's nonce has a say: its last eight bytes are the first of HMAC-SHA256 over the nonce by its
// first eight, so whoever knows the nonce sees in the id that it was used.
func mixed(id token.ID, nonce []byte) token.ID {
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

// keyedID derives the id of a key's ticket: an HMAC over length-prefixed fields, so that no two requests share one by
// moving a boundary.
func (v *visit) keyedID(key []byte, generation int) token.ID {
	var g [8]byte
	binary.BigEndian.PutUint64(g[:], uint64(generation))
	return mixed(v.derived("idempotency-key", []byte(client.Network(v.peer.Addr).String()), key, g[:]), key)
}

// derived is an id of this room that others' words lead to. Domains keep one kind of words from another.
func (v *visit) derived(domain string, words ...[]byte) token.ID {
	return v.derivedBy(v.state.options.IDKey, domain, words...)
}

func (v *visit) derivedBy(key []byte, domain string, words ...[]byte) token.ID {
	h := hmac.New(sha256.New, key)
	field := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	field([]byte(domain))
	field([]byte(v.room.id))
	for _, b := range words {
		field(b)
	}
	return token.ID(h.Sum(nil)[:16])
}

// joinKeyed joins by a key: with the place that the key holds or, where fresh, with the next one where the former has ended. It
// reports whether it has answered: not where the key holds no place and no fresh one is wanted.
func (v *visit) joinKeyed(key []byte, fresh bool) (answered bool) {
	a := admission.Arrival{Client: v.client(), Keyed: true, Held: !fresh, Interval: pace.LongestFirst, Address: v.address()}
	for generation := range generations {
		a.ID = admission.ID(v.keyedID(key, generation))
		s, refusal, err := v.room.line.Join(v.g.life, a)
		switch {
		case err != nil && !fresh:
			return false
		case err == nil && refusal == admission.Granted && s.State > admission.Active:
			continue
		}
		v.joined(codeOf(&s), &a, s, refusal, err)
		return true
	}
	if fresh {
		v.refuse(problemSpentKey, "", "Idempotency-Key")
	}
	return fresh
}

// codeOf is the status of the answer to a join: 201 for a new place.
func codeOf(s *admission.Standing) int {
	if s.New {
		return 201
	}
	return 200
}
