package gateway

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/identity"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/gateway/page"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/token"
)

// account is whom a request is made for, where the room keeps one place for each account.
type account struct {
	state accountState
	base  admission.ID // the first of its ids
	// former are what base would be by the other keys of the configuration.
	former []admission.ID
}

type accountState uint8

const (
	accountNone accountState = iota // the room asks for none, or the request names none
	accountKnown
	accountUnclear // there is a token, and it cannot be checked now
)

// accountMost is the longest name of an account, in bytes.
const accountMost = 256

// identified is how a room finds a request's account.
type identified struct {
	Identity
	header string       // in lower case
	keys   *accountKeys // nil: no JWT names an account
}

// identify finds the request's account. It is not asked of requests with a pass.
func (v *visit) identify() {
	i := v.room.identity
	if i == nil {
		return
	}
	if name := v.headerAccount(i); len(name) > 0 {
		v.account = v.named(name)
		return
	}
	if i.keys == nil {
		return
	}
	for _, raw := range v.siteTokens(i) {
		name, err := v.accountOf(i, raw)
		switch {
		case err == nil:
			v.account = v.named([]byte(name))
			return
		case errors.Is(err, identity.ErrNoKeys):
			v.account.state = accountUnclear
			v.g.metrics.rejectAccount("no_keys")
		case errors.Is(err, errForger):
			v.account.state = accountUnclear
			v.g.metrics.rejectAccount("forger")
		default:
			v.g.metrics.rejectAccount(token.Reason(err))
			if errors.Is(err, token.ErrSignature) {
				return // whoever forges one has no other
			}
		}
	}
}

// errForger means that a JWT is not checked because too many from its address were forged.
var errForger = errors.New("too many JWTs from this address have a wrong signature")

// forgeries bounds how many wrong signatures, and how many wrong answers to a CAPTCHA, the gateway checks for one client address: each costs
// as much as ten plain requests.
var forgeries = Quota{N: 20, Per: time.Second}

// The kinds of what is forged. Each has an allowance of its own.
const (
	forgedToken = iota + 1
	forgedAnswer
)

// forger returns the id by which what a client address forges is metered.
func (v *visit) forger(kind byte) token.ID {
	id := proxy.ClientKey(v.peer.Addr)
	id[8] ^= kind // of which no address makes use
	return id
}

// forges reports whether the client address has forged so much that no more is checked.
func (v *visit) forges(kind byte) bool {
	return v.g.forged.exhausted(v.forger(kind), v.start.Sub(v.g.began), forgeries, 1) > 0
}

// forged counts a forgery.
func (v *visit) forged(kind byte) {
	v.g.forged.take(v.forger(kind), v.start.Sub(v.g.began), forgeries, 1)
}

// accountOf returns the account that a JWT of the site's names.
func (v *visit) accountOf(i *identified, raw []byte) (string, error) {
	if name, ok := i.keys.Known(raw, &i.JWT, v.now/1e6); ok {
		return name, nil
	}
	if v.forges(forgedToken) {
		return "", errForger
	}
	name, err := i.keys.Account(v.g.life, raw, &i.JWT, v.now/1e6)
	if errors.Is(err, token.ErrSignature) {
		v.forged(forgedToken)
	}
	return name, err
}

// named is the account of that name.
func (v *visit) named(name []byte) account {
	a := account{state: accountKnown}
	for i, key := range v.state.options.AccountKeys {
		id := admission.ID(v.derivedBy(key, "account", name))
		if i == 0 {
			a.base = id
		} else {
			a.former = append(a.former, id)
		}
	}
	return a
}

// siteTokensMost is how many JWTs of a request are checked: a signature costs more than the rest of a request, for whoever sends one.
const siteTokensMost = 2

// siteTokens returns the JWTs of the site's own that a request carries: that of Authorization, then the cookies in their order, in all
// siteTokensMost.
func (v *visit) siteTokens(i *identified) [][]byte {
	var list [][]byte
	if raw := bearer(v.req); len(raw) > 0 && !token.Ours(raw) {
		list = append(list, raw)
	}
	if i.JWTCookie == "" {
		return list
	}
	for _, line := range v.req.PeekAll("cookie") {
		for pair := range bytes.SplitSeq(line, []byte(";")) {
			if len(list) == siteTokensMost {
				return list
			}
			name, value, _ := bytes.Cut(bytes.Trim(pair, " \t"), []byte("="))
			if string(name) == i.JWTCookie && len(value) > 0 {
				list = append(list, bytes.Trim(value, `"`))
			}
		}
	}
	return list
}

// bearer is the token of a request's Authorization, nil without one.
func bearer(q *proxy.Request) []byte {
	if raw := q.Peek("authorization"); len(raw) > 7 && client.EqualFold(raw[:7], "bearer ") {
		return bytes.TrimLeft(raw[7:], " ")
	}
	return nil
}

// accountKeys are the keys of one jwks_url and what fetches them.
type accountKeys struct {
	*identity.Keys
	once sync.Once
	stop context.CancelFunc
	life context.Context
}

// keysOf gives the keys of a room's jwks_url: the running ones where there are any, nil where it has none.
func (g *Gateway) keysOf(i Identity, s, old *state) *accountKeys {
	if i.JWKSURL == "" || !i.OnePlace {
		return nil
	}
	k := s.keys[i.JWKSURL]
	if k == nil && old != nil {
		k = old.keys[i.JWKSURL]
	}
	if k == nil {
		k = &accountKeys{Keys: identity.New(i.JWKSURL, g.log, g.metrics.fetchedKeys)}
		k.life, k.stop = context.WithCancel(g.life)
	}
	s.keys[i.JWKSURL] = k
	return k
}

func (k *accountKeys) start(g *Gateway) {
	k.once.Do(func() { g.background.Go(func() { k.Run(k.life) }) })
}

// headerAccount is the account that a trusted proxy names. A name that came twice may be the visitor's own word beside
// the proxy's, and is none.
func (v *visit) headerAccount(i *identified) []byte {
	if i.header == "" || !v.peer.Trusted {
		return nil
	}
	values := v.req.PeekAll(i.header)
	if len(values) != 1 || len(values[0]) > accountMost {
		return nil
	}
	return values[0]
}

// owns tells whether a waiting token is one of the account that the request names.
func (v *visit) owns(w *token.Waiting) bool { return v.ours(admission.ID(w.ID)) }

func (v *visit) ours(id admission.ID) bool {
	return id.Of(v.account.base) || slices.ContainsFunc(v.account.former, id.Of)
}

// place is what asks for this visitor's place, or why there is none for them.
func (v *visit) place() (admission.Arrival, *problem) {
	a := admission.Arrival{Client: v.client(), Interval: pace.LongestFirst, Address: v.address()}
	switch i := v.room.identity; {
	case v.account.state == accountKnown:
		a.ID, a.Former, a.Keyed, a.Account = v.account.base, v.account.former, true, true
	case i == nil || i.Anonymous:
		a.ID = admission.ID(randomID())
	case v.account.state == accountUnclear:
		return a, problemAccounts
	default:
		return a, problemAccount
	}
	return a, nil
}

// arrival is place, or an answer that there is none.
func (v *visit) arrival() (admission.Arrival, bool) {
	a, p := v.place()
	if p == nil {
		return a, true
	}
	v.refuseAccount(p)
	return a, false
}

// refuseAccount answers those who have to log in first.
func (v *visit) refuseAccount(p *problem) {
	v.refusedJoin("account")
	if v.who != client.Navigation {
		v.refuse(p, "", "")
	} else {
		v.outcome = refused
		e := page.Error{Status: p.status, Title: p.title, Detail: p.detail, Link: v.room.identity.LoginURL}
		if words := v.room.line.Snapshot().Policy.Message; words != "" {
			e.Detail = words
		}
		v.body = page.ErrorPage(v.body[:0], &e)
		h := v.begin(p.status, typeHTML)
		h.Set("Content-Security-Policy", page.ErrorHeader())
		retryAfter(h, p.retry)
		v.end()
	}
	if p.status == 401 {
		v.res.Header.Set("WWW-Authenticate", `Bearer realm="account"`)
	}
	v.res.Header.Set("X-Waiting-Room", stateRejected)
}

// adopt makes an account's place of a ticket that was taken before its holder was known, where it was in line. Where the
// account has a place, that one counts. A ticket that cannot be looked up now is served as it is.
func (v *visit) adopt(w *token.Waiting) {
	if v.account.state != accountKnown || w.Account {
		return
	}
	old, err := v.room.line.Check(v.g.life, v.ticket(w, 0, wait{}))
	if err != nil || old.State != admission.Waiting || old.Offline {
		return
	}
	a, _ := v.place()
	a.From = admission.ID(w.ID)
	s, refusal, err := v.room.line.Join(v.g.life, a)
	if err != nil || refusal != admission.Granted || s.Offline || s.State == admission.Ended {
		return
	}
	if s.State == admission.Active { // elsewhere: it is asked about with the account
		s.Ticket.Order, s.Ticket.Fence = s.AdmittedAt, v.room.line.Snapshot().Fence
	}
	*w = v.sign(&s.Ticket, v.joinedSecond(s.Ticket.Order))
}

// same gives an account's other devices the session that one of them has claimed.
func (v *visit) same(s *admission.Standing) {
	if v.account.state != accountKnown || s.State != admission.Ended || s.Reason != admission.ReasonClaimed {
		return
	}
	a, _ := v.place()
	a.Held = true
	if held, refusal, err := v.room.line.Join(v.g.life, a); err == nil && refusal == admission.Granted && held.State == admission.Active {
		*s = held
	}
}

// accountHeaders returns the names of the headers that name the rooms' accounts, in lower case.
func accountHeaders(rooms []*room) (names []string) {
	for _, r := range rooms {
		if name := strings.ToLower(r.options.Identity.Header); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// anySpelling returns a function that reports whether an origin could take a header for one of names, but for those that
// are spelled as one of but. Both lists are in lower case. It returns nil without names.
func anySpelling(names, but []string) func(name []byte) bool {
	if len(names) == 0 {
		return nil
	}
	return func(name []byte) bool {
		return slices.ContainsFunc(names, func(n string) bool { return proxy.IsAlias(name, n) }) &&
			!slices.ContainsFunc(but, func(n string) bool { return client.EqualFold(name, n) })
	}
}
