package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/explain"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/token"
)

// explainTime bounds the lookups of an explanation.
const explainTime = 2 * time.Second

// Explain decides about a request as if a visitor had sent it, with the same code, and explains the decision. Nothing is changed or
// counted: the store is only read.
func Explain(ctx context.Context, g *Gateway, q *explain.Request) (*explain.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, explainTime)
	defer cancel()
	e := explainer(ctx, g)
	v := e.acquire(nil, nil)
	d := &wire.Description{}
	address := q.Address
	if !address.IsValid() {
		address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	d.Begin([]byte(q.Method), []byte(q.Target), []byte(q.Host), address, q.TLS)
	for _, f := range q.Header {
		d.Add([]byte(f[0]), []byte(f[1]))
	}
	limits := g.limits.OfDescribed()
	described, refusal := d.Request(&limits)
	if refusal != nil {
		return nil, &explain.Fault{Code: refusal.Code, Detail: refusal.Detail}
	}
	v.req = described
	v.out.Begin(described, nil, v.start)
	at := v.locate()
	v.peer = client.Peer{Addr: address, Secure: q.TLS}
	out := &explain.Explanation{Tokens: explain.Tokens{Pass: tokenNone, Ticket: tokenNone}, Kind: kindNames[client.KindOf(described)], Readings: v.readings.List()}
	if at.Kind == route.ToOwn {
		out.Rule.Kind, out.Decision, out.Why = "own", "own", groundNames[onOther]
		out.Text = "The gateway answers below " + route.Own + " itself."
		return out, nil
	}
	decided, problem := v.decide(at)
	explainPlace(out, v, at)
	explainTokens(&out.Tokens, v)
	explainDecision(out, v, &decided, problem)
	return out, nil
}

// explainer returns a gateway with the configuration in use. It has metrics of its own, and cannot change the store.
func explainer(ctx context.Context, g *Gateway) *Gateway {
	st := g.state.Load()
	e := &Gateway{
		log: discarded, core: g.core, limits: g.limits, metrics: metrics.New(nil, ""), meters: newMeters(), captcha: g.captcha,
		cache: token.NewCache(tokensMax), visits: sync.Pool{New: func() any { return &visit{} }},
	}
	e.life.ctx, e.life.end = ctx, func() {}
	e.cache.Swap(g.cache.Ring())
	dry := &state{
		options: st.options, byID: map[string]*room{}, table: st.table, origins: st.origins, keys: st.keys, keySet: st.keySet, order: st.order,
		byDefault: st.byDefault, drops: st.drops, clientHeader: st.clientHeader, hops: st.hops,
	}
	dry.options.Tracer = nil // an explanation is no request
	for _, r := range st.rooms {
		read := *r
		only := dryStore{r.queue}
		read.store, read.metrics = store{r.store.clock, only, only, only}, e.metrics.Room(r.id)
		dry.rooms = append(dry.rooms, &read)
		dry.byID[r.id] = &read
	}
	e.state.Store(dry)
	return e
}

const (
	tokenNone    = "none"
	tokenValid   = "valid"
	tokenInvalid = "invalid"
)

var kindNames = map[client.Kind]string{
	client.API: "api", client.Navigation: "navigation", client.Subresource: "subresource", client.Preflight: "preflight",
	client.Prefetch: "prefetch", client.Upgrade: "upgrade",
}

// groundNames are the words for grounds in an explanation.
var groundNames = map[ground]string{
	onOther: "own", onNoRoom: "no_room", onOpenRoom: "room_open", onPreflight: "preflight", onBypass: "bypass", onPass: "pass",
	onCapacity: "capacity", onAdmission: "admitted", onQueue: "queue", onChallenge: "challenge", onRedirect: "several_readings",
}

// explainPlace sets the rule that led to the room.
func explainPlace(e *explain.Explanation, v *visit, at route.Place) {
	e.Rule = explain.Rule{Kind: "none", Host: at.Host, Path: at.Path}
	switch at.Kind {
	case route.TwoRooms, route.TooMany:
		e.Rule.Kind = "ambiguous"
	case route.ToRoom:
		e.Rule.Kind, e.Room = "room", v.roomID()
	case route.ToOrigin:
		if v.state.byDefault != nil || len(v.state.order) > 0 && (!v.state.table.HasRooms() || v.state.table.Knows(v.host)) {
			e.Rule.Kind = "default_origin"
		}
	}
}

// explainTokens sets whether the request's tokens are valid.
func explainTokens(e *explain.Tokens, v *visit) {
	if v.room == nil {
		return
	}
	v.enterRoom()
	if len(v.jar.Pass.All())+len(v.req.Peek("x-waiting-room-pass")) > 0 {
		e.Pass = tokenInvalid
		if _, ok := v.tokens.findPass(); ok {
			e.Pass = tokenValid
		}
	}
	v.tokens.forged = false
	if _, ok, any := v.tokens.findTicket(false); any {
		e.Ticket = tokenInvalid
		if ok {
			e.Ticket = tokenValid
		}
	}
}

// explainDecision sets the decision and its text.
func explainDecision(e *explain.Explanation, v *visit, d *decision, p *answer.Problem) {
	if p != nil {
		e.Decision, e.Why, e.Status, e.Code = "refuse", "refused", p.Status, p.Code
		e.Text = strings.TrimSuffix(cmp.Or(p.Detail, p.Title), ".") + "."
		return
	}
	e.Why, e.Status = groundNames[d.ground], d.code
	if d.origin != nil {
		e.Origin = d.origin.ID()
	}
	switch d.action {
	case doProxy:
		e.Decision, e.Status = "proxy", 0
	case doWait:
		e.Decision = "wait"
		if v.kind == client.Navigation {
			e.Status = v.room.options.PageStatus
		}
	default:
		e.Decision = "redirect"
	}
	switch d.ground {
	case onBypass:
		e.Rule.Kind, e.Rule.Index = "bypass", new(d.rule)
		e.Text = fmt.Sprintf("Bypass rule %d of the room %s matches: the request goes to the origin without a pass, and is not counted.", d.rule, e.Room)
	case onNoRoom:
		e.Text = "No room has this host and path: the request goes to the default origin without a pass."
	case onOpenRoom:
		e.Text = "The room passes every visitor: it is switched off, or its method is passthrough."
	case onPreflight:
		e.Text = "A CORS preflight carries no pass: it goes to the origin, within a limit of its own."
	case onPass:
		e.Text = "The request has a valid pass."
	case onCapacity:
		e.Text = "The request takes no ticket; nobody waits and the limiter has capacity, so it goes to the origin."
	case onAdmission:
		e.Decision = "admit"
		e.Text = "Nobody waits and the room admits: the visitor gets a session with this request, if the limiter has capacity."
		if e.Tokens.Ticket == tokenValid {
			e.Text = "The ticket of the request is admitted: the visitor gets a session with this request."
		}
	case onQueue:
		e.Text = "The request has no valid pass, and the visitor has to wait."
	case onChallenge:
		e.Decision = "challenge"
		e.Text = "The request has no valid pass, and a join needs a proof of work or a CAPTCHA first."
	case onRedirect:
		e.Text = "Servers read this path in several ways that lead to different rooms: the visitor is sent to the path that a browser would request."
	}
}
