package console

import (
	"net/http"

	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// previews serves the page of a room's visitors in each state and language.
type previews struct{ *Console }

// list responds with the states and languages of a room's page that can be shown.
func (previews) list(w http.ResponseWriter, _ *http.Request, _ *access.Person, room Room) error {
	answer := struct {
		States    []string `json:"states"`
		Languages []string `json:"languages"`
	}{[]string{}, []string{}}
	if room.Page != nil {
		answer.States, answer.Languages = room.Page.Previews()
	}
	return ophttp.OK(w, answer)
}

// ServeHTTP serves a room's page in one state and language to a frame of the console. It needs no token, which a frame cannot send: the
// page and its message are public, and the ids of rooms are on /metrics.
func (p previews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	for _, room := range p.o.Rooms() {
		if room.Queue.ID() != query.Get("room") || room.Page == nil {
			continue
		}
		body, policy, ok := room.Page.Preview(query.Get("state"), query.Get("language"), room.Queue.Snapshot().Policy.Message)
		if !ok {
			break
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy+"; sandbox")
		h.Set("X-Frame-Options", "SAMEORIGIN")
		_, _ = w.Write(body) // fails when the client has disconnected
		return
	}
	ophttp.NewProblem(http.StatusNotFound, "not_found", "no room has this page; GET /admin/v1/rooms/{id}/preview lists the states and languages").Write(w)
}
