package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/outbound"
)

// Types of events.
const (
	QueueStarted    = "room.queue.started"
	QueueEnded      = "room.queue.ended"
	RoomChanged     = "room.changed"
	RoomSoldOut     = "room.sold_out"
	OriginUnhealthy = "room.origin.unhealthy"
	OriginHealthy   = "room.origin.healthy"
	StoreLost       = "room.store.lost"
	StoreBack       = "room.store.back"
	EventStarting   = "event.starting"
	EventEnded      = "event.ended"
	Test            = "webhook.test" // sent by gateway webhook test only
)

// Types returns the types that an endpoint can ask for.
func Types() []string {
	return []string{QueueStarted, QueueEnded, RoomChanged, RoomSoldOut, OriginUnhealthy, OriginHealthy, StoreLost, StoreBack, EventStarting, EventEnded, SessionEnded}
}

// event is an event of a room.
type event struct {
	kind, room string
	at         time.Time
	data       map[string]any // beside room
	// marks tell the event from others of its kind and room. Gateways that see one event have the same marks.
	marks []string
}

// id returns the webhook-id: the same for the same event on every gateway.
func (e *event) id() string {
	h := sha256.New()
	for _, s := range append([]string{e.kind, e.room}, e.marks...) {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return "msg_" + hex.EncodeToString(h.Sum(nil)[:16])
}

// traceOf returns the id of the trace of an event: the number in its webhook-id. It is zero for ids of another form.
func traceOf(id string) (trace [16]byte) {
	digits, ok := strings.CutPrefix(id, "msg_")
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != len(trace) {
		return trace
	}
	return [16]byte(raw)
}

// about returns the type and the room in the JSON of an event; empty without one.
func about(body string) (kind, room string) {
	var e struct {
		Type string `json:"type"`
		Data struct {
			Room string `json:"room"`
		} `json:"data"`
	}
	if json.Unmarshal([]byte(body), &e) != nil {
		return "", ""
	}
	return e.Type, e.Data.Room
}

// body returns the JSON that is sent.
func (e *event) body() string {
	data := map[string]any{}
	if e.room != "" {
		data["room"] = e.room
	}
	maps.Copy(data, e.data)
	text, _ := json.Marshal(struct { // strings, numbers and maps of them never fail
		Type      string         `json:"type"`
		Timestamp string         `json:"timestamp"`
		Data      map[string]any `json:"data"`
	}{e.kind, stamp(e.at), data})
	return string(text)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

func micros(us int64) string { return stamp(time.UnixMicro(us)) }

// Endpoint is where events are sent.
type Endpoint struct {
	Name         string
	URL          string
	Secrets      []Secret // each signs, so that receivers can change theirs
	Events       []string // empty: all but SessionEnded
	Rooms        []string // empty: all
	AllowPrivate bool     // its address may be private
}

// Host returns the host and port of the URL. Its path may contain a secret.
func (e *Endpoint) Host() string {
	u, err := outbound.ParseURL(e.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

func (e *Endpoint) wants(kind, room string) bool {
	return (len(e.Events) == 0 && kind != SessionEnded || slices.Contains(e.Events, kind)) && (len(e.Rooms) == 0 || slices.Contains(e.Rooms, room))
}

// wanting returns the names of the endpoints that want an event.
func wanting(endpoints []Endpoint, kind, room string) (names []string) {
	for i := range endpoints {
		if endpoints[i].wants(kind, room) {
			names = append(names, endpoints[i].Name)
		}
	}
	return names
}

func join(words ...string) string { return strings.Join(words, " ") }
