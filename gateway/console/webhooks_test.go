package console

import (
	"strings"
	"testing"

	"github.com/anteroom/anteroom/admission/outbox"
)

// deadEvent gives up an event.
func (b *bench) deadEvent() {
	b.t.Helper()
	q, ctx := b.events(), b.t.Context()
	_, err := q.Note(ctx, []outbox.Change{{ID: "msg_1", Body: `{"type":"room.changed"}`, Endpoints: []string{"crm"}}})
	if err == nil {
		_, err = q.Take(ctx, "a", 1, nil)
	}
	if err == nil {
		err = q.Settle(ctx, outbox.Outcome{Endpoint: "crm", ID: "msg_1", Verdict: outbox.Dead, Error: "the response was 410 Gone"})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestWebhooks_ShowsQueuesAndDeadEvents(t *testing.T) {
	b := newBench(t)
	b.deadEvent()
	w := b.ask("GET", "/admin/v1/webhooks", "")
	want(t, w, 200)
	for _, part := range []string{
		`"sender":"a"`,
		`"webhooks":[{"name":"crm","host":"hooks.example.com","events":["room.changed"],"rooms":[],"pending":0,"delivered":0,"dead":1,"dropped":0}]`,
		`"webhook":"crm","id":"msg_1","queued_at":"`, `"tries":1,"error":"the response was 410 Gone","event":{"type":"room.changed"}}]`,
	} {
		if !strings.Contains(w.Body.String(), part) {
			t.Errorf("%s\nlacks %s", w.Body, part)
		}
	}
}
