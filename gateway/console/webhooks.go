package console

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// Webhooks is the state of the webhooks.
type Webhooks struct {
	Sender string // the gateway that sends; "": none at the moment
	List   []Webhook
	Dead   []DeadEvent // newest first
}

// Webhook is the state of one webhook. The numbers are those of the fleet since the queue began in this store.
type Webhook struct {
	Name      string   `json:"name"`
	Host      string   `json:"host"`
	Events    []string `json:"events"`
	Rooms     []string `json:"rooms"`
	Pending   int64    `json:"pending"`
	Delivered int64    `json:"delivered"`
	Dead      int64    `json:"dead"`
	Dropped   int64    `json:"dropped"`
}

// DeadEvent is an event that was given up. Times are µs of Redis's clock.
type DeadEvent struct {
	Webhook, ID  string
	QueuedAt, At int64
	Tries        int
	Error        string
	Body         json.RawMessage
}

type deadEventView struct {
	Webhook  string          `json:"webhook"`
	ID       string          `json:"id"`
	QueuedAt timestamp       `json:"queued_at"`
	At       timestamp       `json:"at"`
	Tries    int             `json:"tries"`
	Error    string          `json:"error"`
	Event    json.RawMessage `json:"event"`
}

// showWebhooks returns the handler that shows a state of the webhooks.
func showWebhooks(current func(ctx context.Context, dead int) (Webhooks, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, _ *access.Person) error {
		limit, err := wholeParameter(r, "limit", defaultEntries, maxEntries)
		if err != nil {
			return err
		}
		state, err := read(r, func(ctx context.Context) (Webhooks, error) { return current(ctx, limit) })
		if err != nil {
			return err
		}
		answer := struct {
			Sender   string          `json:"sender"`
			Webhooks []Webhook       `json:"webhooks"`
			Dead     []deadEventView `json:"dead"`
		}{Sender: state.Sender, Webhooks: make([]Webhook, 0, len(state.List)), Dead: make([]deadEventView, 0, len(state.Dead))}
		for _, h := range state.List {
			h.Events, h.Rooms = append([]string{}, h.Events...), append([]string{}, h.Rooms...) // [], never null
			answer.Webhooks = append(answer.Webhooks, h)
		}
		for _, d := range state.Dead {
			answer.Dead = append(answer.Dead, deadEventView{
				Webhook: d.Webhook, ID: d.ID, QueuedAt: timestamp(d.QueuedAt), At: timestamp(d.At), Tries: d.Tries, Error: d.Error, Event: d.Body,
			})
		}
		return ophttp.OK(w, answer)
	}
}
