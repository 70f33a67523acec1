package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

// An event that could not be delivered survives kill -9 of its gateway, and is delivered with the same id when the endpoint is there.
func TestWebhooks_SurviveKill(t *testing.T) {
	t.Parallel()
	type request struct{ id, kind string }
	seen := make(chan request, 100)
	accept := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e struct{ Type string }
		_ = json.Unmarshal(body, &e)
		select {
		case <-accept:
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		select {
		case seen <- request{r.Header.Get("webhook-id"), e.Type}:
		default:
		}
	}))
	t.Cleanup(receiver.Close)
	secret := filepath.Join(tempDir(t), "webhook.secret")
	write(t, secret, "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh\n")
	g := start(t, setup{
		origin: newOrigin(t, nil).URL,
		rooms:  []string{room("admission: {rate: 0.001, burst: 1}")},
		more:   fmt.Sprintf("webhooks: [{name: crm, url: %q, secret_file: %q, allow_private: true, events: [room.queue.started]}]\n", receiver.URL, secret),
	})
	c := newClient(t, g)
	for range 3 {
		c.join(g)
	}
	first := <-seen
	g.kill()
	close(accept)
	g.restart()
	again := <-seen
	if first.kind != "room.queue.started" || again != first {
		t.Errorf("%v was repeated as %v", first, again)
	}
	o := adminOf(t, g)
	var body string
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(body)
		}
	})
	until(t, "the delivery is recorded", func() bool {
		body = o.get("webhooks").body
		var state struct {
			Webhooks []struct{ Pending, Delivered int }
		}
		return json.Unmarshal([]byte(body), &state) == nil && len(state.Webhooks) == 1 && state.Webhooks[0].Delivered == 1 && state.Webhooks[0].Pending == 0
	})
}
