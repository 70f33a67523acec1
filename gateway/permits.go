package gateway

import (
	"context"
	"errors"

	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/permit"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/token"
)

// servePermits issues a permit to a client with a pass. It does not use the store.
func servePermits(v *visit) (decision, *answer.Problem) {
	r := v.room
	body, p := readBody(v, bodyMax)
	if p != nil {
		return decision{}, p
	}
	wanted, fault := permit.ParseRequest(body)
	if fault != nil {
		return decision{}, answer.InvalidBody.With(fault.Detail).At(fault.Member)
	}
	path, p := exactPath(v, wanted.For)
	if p != nil {
		return decision{}, p
	}
	snap := r.queue.Snapshot()
	pass, ok := v.tokens.findPass()
	switch {
	case !ok && snap.Policy.Open():
		return v.empty(204), nil // every request is forwarded
	case !ok:
		return decision{}, answer.PassRequired
	}
	if q := r.options.SessionPermits; q.N > 0 {
		if wait := v.g.meters.requests.Take(permitKey(q, pass.Session), v.g.meters.at(v.start), q, snap.Gateways); wait > 0 {
			r.metrics.Permits["over_quota"].Inc()
			return decision{}, answer.TooManyPermits.After(seconds(wait))
		}
	}
	now := v.now / 1e6
	issued := token.Permit{
		ID: randomID(), Session: pass.Session, Room: r.id, Path: path, Method: wanted.Method, Epoch: snap.Epoch, IssuedAt: now, Expires: now + token.PermitLife,
	}
	raw := v.g.cache.Ring().AppendPermit(nil, &issued)
	v.grant.permitCookie(raw)
	b := answer.AppendString(append(v.out.Body[:0], `{"permit":`...), string(raw))
	b = answer.AppendString(append(b, `,"for":`...), path)
	b = answer.AppendString(append(b, `,"method":`...), wanted.Method)
	b = answer.AppendTime(append(b, `,"expires_at":`...), issued.Expires*1e6)
	v.out.Body = append(b, '}')
	r.metrics.Permits["issued"].Inc()
	return document(proxied, 201, answer.TypeJSON), nil
}

// permitCookie adds the cookie of a permit, for links and forms, which cannot send a header field. Browsers do not send it with requests
// from other sites, unless cookies.same_site is none.
func (n *grant) permitCookie(raw []byte) {
	sameSite := client.SameSiteStrict
	if n.r.state.options.SameSite == client.SameSiteNone {
		sameSite = client.SameSiteNone
	}
	n.out.Cookie(n.r.names().Permit, raw, token.PermitLife, sameSite, n.r.peer.Secure)
}

// exactPath returns the path of a requested permit in its exact form. The path has to lead to this room on this host.
func exactPath(v *visit, path string) (string, *answer.Problem) {
	var readings route.Readings
	at := v.state.table.Locate(v.host, []byte(path), &readings)
	exact, ok := route.AppendExact(nil, []byte(path), &readings)
	switch {
	case !ok:
		return "", answer.InvalidBody.With("Servers read this path in several ways. Send it without dot segments, empty segments, parameters, control characters, backslashes, and escapes of letters, digits and slashes.").At("for")
	case at.Kind != route.ToRoom || v.state.rooms[at.Room] != v.room:
		return "", answer.InvalidBody.With("This path does not belong to this room on this host. Send the path of a step in the room, or ask the room of that path.").At("for")
	case len(exact) > permit.PathMax:
		return "", answer.InvalidBody.With("This path is too long. Send one of at most 1024 bytes.").At("for")
	}
	return string(exact), nil
}

// RedeemPermit redeems a permit of a gateway, once for all gateways; see permit.Redeem. A permit of a room for which in returns false is
// invalid.
func RedeemPermit(ctx context.Context, g *Gateway, raw, key string, in func(room string) bool) (permit.Redemption, error) {
	var r *room
	redeemed, err := permit.Redeem(ctx, g.cache.Ring(), func(id string) permit.Room {
		if in(id) {
			r = g.state.Load().byID[id]
		}
		if r == nil {
			return nil
		}
		return r.queue
	}, raw, key)
	if r == nil {
		return redeemed, err
	}
	result := "redeemed"
	switch {
	case errors.Is(err, permit.ErrSpent):
		result = "redeemed_before"
	case err != nil:
		result = "not_redeemed"
	}
	r.metrics.Permits[result].Inc()
	return redeemed, err
}
