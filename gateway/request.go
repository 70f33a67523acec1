package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/client"
	"github.com/anteroom/anteroom/gateway/route"
	"github.com/anteroom/anteroom/gateway/wire"
	"github.com/anteroom/anteroom/token"
)

// request holds the facts of one request. They are collected before a handler runs, which only reads them.
type request struct {
	req    *wire.Request
	state  *state
	start  time.Time
	target []byte // as it was sent, in origin form
	host   []byte // in lower case, without port
	peer   client.Peer
	kind   client.Kind

	// Of requests to a room:
	room    *room
	now     int64 // µs of Redis's clock
	jar     client.Jar
	account account
	site    []byte // another site that cors_origins allows

	readings route.Readings // of the path
	binding  client.Binding
	memory   [2][]byte // for the host and for texts
}

// clear ends the request: what is kept is memory for the next one. A literal of request would be made on the stack and copied.
func (r *request) clear() {
	r.req, r.state, r.start, r.target, r.host, r.peer, r.kind = nil, nil, time.Time{}, nil, nil, client.Peer{}, 0
	r.room, r.now, r.jar, r.account, r.site = nil, 0, client.Jar{}, account{}, nil
}

// locate sets target and host, and returns the room or endpoint of the request.
func (r *request) locate() route.Place {
	r.target = r.req.Target()
	r.host, r.memory[0] = route.HostName(r.req.Host(), r.memory[0])
	return r.state.table.Locate(r.host, route.PathOf(r.target), &r.readings)
}

// identifyPeer sets the address of the client and what trusted proxies report of it.
func (r *request) identifyPeer() {
	o := &r.state.options
	r.peer = client.PeerOf(r.req, o.TrustedProxies, o.TrustedHeader)
}

// enterRoom sets the facts that decisions about a room need.
func (r *request) enterRoom() {
	r.now = r.room.store.RedisNow()
	r.jar.Read(r.req, r.names())
	r.binding.Set(r.state.options.Bind, r.peer.Addr, r.req.Peek("user-agent"))
}

// names returns the room's cookie names for this connection.
func (r *request) names() *client.CookieNames { return r.room.names(r.peer.Secure) }

func (r *request) roomID() string {
	if r.room == nil {
		return ""
	}
	return r.room.id
}

// isRead reports whether the method is GET or HEAD.
func (r *request) isRead() bool { return r.req.Is("GET") || r.req.Is("HEAD") }

// derive returns an id of this room, derived from words. Each kind of id has its own domain.
func (r *request) derive(domain string, words ...[]byte) token.ID {
	return r.deriveBy(r.state.options.IDKey, domain, words...)
}

func (r *request) deriveBy(key []byte, domain string, words ...[]byte) token.ID {
	return token.ID(sumOf(key, domain, r.room.id, words...)[:16])
}

// sumOf returns an HMAC over length-prefixed words, so that different lists of words have different sums.
func sumOf(key []byte, domain, room string, words ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	write := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	write([]byte(domain))
	write([]byte(room))
	for _, b := range words {
		write(b)
	}
	return h.Sum(nil)
}

// addressHash is the length of each half of the hash of an address: long enough to avoid collisions in a room.
const addressHash = 9

// addressOf returns the hash under which joins from the client's address are counted, followed by the hash of the network around the
// address; empty if the room does not limit joins. The address cannot be recovered without the key.
func (r *request) addressOf() string {
	if r.room.options.Policy.Joins <= 0 || !r.peer.Addr.IsValid() {
		return ""
	}
	one, around := 32, 24
	if r.peer.Addr.Is6() {
		one, around = 64, 48
	}
	out := make([]byte, 0, 2*addressHash)
	for _, bits := range []int{one, around} {
		prefix, err := r.peer.Addr.Prefix(bits)
		if err != nil {
			return ""
		}
		out = append(out, sumOf(r.state.options.IDKey, "join", r.room.id, []byte(prefix.String()))[:addressHash]...)
	}
	return string(out)
}

// takenAt returns the time at which a ticket of an order was taken, in seconds of Redis's clock. If that clock was never set back, it
// equals order time within the error of the estimates, and the order itself is the time.
func (r *request) takenAt(order int64) int64 {
	now := r.room.queue.Now()
	if order == 0 || now == 0 {
		return r.now / 1e6
	}
	if apart := r.room.queue.RedisNow() - now; apart > -clockError && apart < clockError {
		return order / 1e6
	}
	return (r.now - max(0, now-order)) / 1e6
}

// clockError bounds the difference of two estimates of one clock, in µs.
const clockError = 100_000

// joinedAt returns the time at which a ticket was taken, in µs of Redis's clock: the order if both lie in the same second, else that
// second.
func joinedAt(w *token.Waiting) int64 {
	if w.Order/1e6 == w.IssuedAt {
		return w.Order
	}
	return w.IssuedAt * 1e6
}

// sessionTTL returns session.ttl in seconds.
func (r *request) sessionTTL() int64 {
	return int64(r.room.queue.Snapshot().Policy.SessionTTL / time.Second)
}

// sessionLife returns the remaining life of a pass in seconds: the ttl of the session, or the life of a pass that is signed once, bounded
// by session.max.
func (r *request) sessionLife(policy *admission.Policy, issued, now int64) int64 {
	life := max(1, int64(max(policy.SessionTTL, policy.PassLife)/time.Second))
	if most := int64(r.room.options.MaxSession / time.Second); most > 0 {
		life = min(life, issued+most-now)
	}
	return life
}
