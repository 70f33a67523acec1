package gateway

import (
	"bytes"

	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/facts"
)

// view returns what the room publishes for those who wait, nil for nothing.
func (r *room) view() *facts.View { return r.facts.Of(&r.queue.Snapshot().Facts) }

// closed returns the problem of a room that is closed.
func (r *room) closed() *answer.Problem {
	if p := &r.queue.Snapshot().Policy; p.SoldOut {
		return answer.RoomSoldOut
	}
	return answer.RoomClosed
}

// serveFacts sends what the room publishes for those who wait. With the version in the address caches may keep it for ever. Another
// gateway may know a newer version than this one for a moment, so the response to any other version is kept for a second.
func serveFacts(v *visit) (decision, *answer.Problem) {
	f := v.room.view()
	if f == nil {
		return decision{}, answer.NoFacts
	}
	caching := "public, max-age=1"
	if _, query, _ := bytes.Cut(v.target, []byte("?")); string(query) == "v="+f.Version {
		caching = "public, max-age=31536000, immutable"
	}
	return v.publish(f.Body, waiting, caching), nil
}

// factsWatch notices new facts of any room, for event streams.
type factsWatch struct {
	g     *Gateway
	known map[string]string // hash by room
}

// changed reports whether the facts of a room have changed since the last call.
func (w *factsWatch) changed() bool {
	any := false
	for _, r := range w.g.state.Load().rooms {
		if hash := r.queue.Snapshot().Facts.Hash; w.known[r.id] != hash {
			w.known[r.id], any = hash, true
		}
	}
	return any
}
