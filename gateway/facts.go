package gateway

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/facts"
	"github.com/anteroom/anteroom/gateway/page"
)

// view returns what the room publishes for those who wait, nil for nothing.
func (r *room) view() *facts.View { return r.facts.Of(&r.queue.Snapshot().Facts, r.queue.RedisNow()) }

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
	_, query, _ := bytes.Cut(v.target, []byte("?"))
	query, isModule := bytes.CutSuffix(query, []byte("&js"))
	if string(query) == "v="+f.Version {
		caching = "public, max-age=31536000, immutable"
	}
	if isModule {
		d := v.publish(f.Module, waiting, caching)
		d.contentType = "text/javascript; charset=utf-8"
		return d, nil
	}
	return v.publish(f.Body, waiting, caching), nil
}

// factsTexts are the words for states and levels by language, as JSON.
var factsTexts = sync.OnceValue(func() string {
	texts, err := page.FactsTexts()
	if err != nil {
		panic(err) // embedded at build time
	}
	b, err := json.Marshal(texts)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(b)
})

// factsWatch notices new facts of any room, for event streams.
type factsWatch struct {
	g     *Gateway
	known map[string]*facts.View // by room
}

// changed reports whether the facts of a room have changed since the last call.
func (w *factsWatch) changed() bool {
	any := false
	for _, r := range w.g.state.Load().rooms {
		if f := r.view(); w.known[r.id] != f {
			w.known[r.id], any = f, true
		}
	}
	return any
}
