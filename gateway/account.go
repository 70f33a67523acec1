package gateway

import (
	"bytes"
	"errors"
	"slices"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/identity"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/token"
)

// account is the account of a request, in a room that keeps one ticket for each account.
type account struct {
	state accountState
	base  admission.ID // the first of its ids
	// former are the values of base under the other keys of the configuration.
	former []admission.ID
}

type accountState uint8

const (
	accountNone accountState = iota // the room has no accounts, or the request names none
	accountKnown
	accountUnclear // there is a token that cannot be checked now
)

// accountMax is the longest name of an account, in bytes.
const accountMax = 256

// identified are the settings by which a room finds the account of a request.
type identified struct {
	Identity
	header string       // in lower case
	keys   *accountKeys // nil: no JWT names an account
}

// identify sets the account of the request. Requests with a pass need no account.
func (c *tokenCheck) identify() {
	i := c.r.room.identity
	if i == nil {
		return
	}
	if name := c.r.headerAccount(i); len(name) > 0 {
		c.r.account = c.r.named(name)
		return
	}
	if i.keys == nil {
		return
	}
	for _, raw := range c.r.siteTokens(i) {
		name, err := c.accountOf(i, raw)
		switch {
		case err == nil:
			c.r.account = c.r.named([]byte(name))
			return
		case errors.Is(err, identity.ErrNoKeys):
			c.r.account.state = accountUnclear
			c.g.metrics.RejectedAccounts["no_keys"].Inc()
		case errors.Is(err, errForger):
			c.r.account.state = accountUnclear
			c.g.metrics.RejectedAccounts["forger"].Inc()
		default:
			c.g.metrics.RejectedAccounts[token.Reason(err)].Inc()
			if errors.Is(err, token.ErrSignature) {
				return // no other JWT of a client that forges one is checked
			}
		}
	}
}

// errForger is returned when a JWT is not checked because too many from the same address were forged.
var errForger = errors.New("too many JWTs from this address have a wrong signature")

// accountOf returns the account in a JWT of the site.
func (c *tokenCheck) accountOf(i *identified, raw []byte) (string, error) {
	if name, ok := i.keys.Known(raw, &i.JWT, c.r.now/1e6); ok {
		return name, nil
	}
	if c.g.meters.forges(c.r, forgedToken) {
		return "", errForger
	}
	name, err := i.keys.Account(c.g.life.ctx, raw, &i.JWT, c.r.now/1e6)
	if errors.Is(err, token.ErrSignature) {
		c.g.meters.forged(c.r, forgedToken)
	}
	return name, err
}

// named returns the account with a name.
func (r *request) named(name []byte) account {
	ids := r.room.accountIDs(r.state.options.AccountKeys, name)
	return account{state: accountKnown, base: ids[0], former: ids[1:]}
}

// accountIDs returns the first ids of the places of an account, by each key, that of new places first.
func (r *room) accountIDs(keys [][]byte, name []byte) []admission.ID {
	ids := make([]admission.ID, len(keys))
	for i, key := range keys {
		ids[i] = admission.ID(sumOf(key, "account", r.id, name)[:16])
	}
	return ids
}

// siteTokensMax is the number of JWTs of a request that are checked. The check of a signature costs more than the rest of a request.
const siteTokensMax = 2

// siteTokens returns at most siteTokensMax JWTs of the site: from Authorization, then from the cookies in their order.
func (r *request) siteTokens(i *identified) [][]byte {
	var list [][]byte
	if raw := bearer(r.req); len(raw) > 0 && !token.Ours(raw) {
		list = append(list, raw)
	}
	if i.JWTCookie == "" {
		return list
	}
	for _, line := range r.req.PeekAll("cookie") {
		for pair := range bytes.SplitSeq(line, []byte(";")) {
			if len(list) == siteTokensMax {
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

// headerAccount returns the account in the header field of a trusted proxy. A field that is present twice is not used, because one
// of the two may come from the client.
func (r *request) headerAccount(i *identified) []byte {
	if i.header == "" || !r.peer.Trusted {
		return nil
	}
	values := r.req.PeekAll(i.header)
	if len(values) != 1 || len(values[0]) > accountMax {
		return nil
	}
	return values[0]
}

// owns reports whether a ticket belongs to the account.
func (a *account) owns(id admission.ID) bool {
	return id.Of(a.base) || slices.ContainsFunc(a.former, id.Of)
}

// newArrival returns the join of this client, or the problem because of which the client receives no ticket.
func newArrival(v *visit) (arrival, *answer.Problem) {
	a := arrival{Arrival: admission.Arrival{Client: v.grant.client(), Interval: pace.LongestFirst, Address: v.addressOf()}}
	switch i := v.room.identity; {
	case v.account.state == accountKnown:
		a.ID, a.Former, a.Keyed, a.Account = v.account.base, v.account.former, true, true
	case i == nil || i.Anonymous:
		a.ID = admission.ID(randomID())
	case v.account.state == accountUnclear:
		return a, answer.AccountsUnavailable
	default:
		return a, answer.AccountRequired
	}
	return a, nil
}

// refuseAccount returns the problem of a client that has to log in first, for the page with the operator's message and a link.
func (v *visit) refuseAccount(p *answer.Problem) *answer.Problem {
	v.room.countRefusedJoin("account")
	p = p.In(answer.StateRejected)
	if v.kind == client.Navigation {
		p.Link = v.room.identity.LoginURL
		p = p.With(v.room.queue.Snapshot().Policy.Message)
	}
	if p.Status == 401 {
		p.Header = [2]string{"WWW-Authenticate", `Bearer realm="account"`}
	}
	return p
}

// adopt replaces a ticket that was taken before the login by a ticket of the account with the same order, or by the ticket that the
// account already has. A ticket that cannot be checked now stays. One that has ended may have been replaced before, by a response that was
// lost: the ticket of the account replaces it again.
func adopt(v *visit, w *token.Waiting) {
	if v.account.state != accountKnown || w.Account {
		return
	}
	old, err := v.room.store.Check(callsOf(v, admission.ID(w.ID)), ticketOf(w, 0, forecast.Wait{}, v.grant.client()))
	if err != nil || old.State != admission.Waiting && old.State != admission.Ended || old.Offline {
		return
	}
	a, _ := newArrival(v)
	if a.Held = old.State == admission.Ended; !a.Held {
		a.From = admission.ID(w.ID)
	}
	s, refusal, err := v.room.store.Join(callsOf(v, a.ID), a.Arrival)
	if err != nil || refusal != admission.Granted || s.Offline || s.State == admission.Ended {
		return
	}
	if s.State == admission.Active { // on another device: the account's session has the same id
		s.Ticket.Order, s.Ticket.Fence = s.AdmittedAt, v.room.queue.Snapshot().Fence
	}
	*w = v.grant.signTicket(&s.Ticket, v.takenAt(s.Ticket.Order), lineageOf(w))
}

// shareSession replaces the standing of an account's ticket, if another device has claimed it, by the session of that device.
func shareSession(v *visit, s *admission.Standing) {
	if v.account.state != accountKnown || s.State != admission.Ended || s.Reason != admission.ReasonClaimed {
		return
	}
	a, _ := newArrival(v)
	a.Held = true
	held, refusal, err := v.room.store.Join(callsOf(v, a.ID), a.Arrival)
	if err == nil && refusal == admission.Granted && held.State == admission.Active {
		*s = held
	}
}
