package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

const (
	defaultMinutes, maxMinutes = 60, 1440
	defaultEntries, maxEntries = 100, 1000
)

// timestamp is microseconds since 1970, by Redis's clock, written as RFC 3339 in UTC.
type timestamp int64

// MarshalJSON writes the time with microseconds.
func (t timestamp) MarshalJSON() ([]byte, error) {
	return []byte(time.UnixMicro(int64(t)).UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}

// optional returns nil for 0.
func optional(t int64) *timestamp {
	if t == 0 {
		return nil
	}
	return new(timestamp(t))
}

type bucketView struct {
	At         timestamp  `json:"at"`
	Joins      int64      `json:"joins"`
	Admissions int64      `json:"admissions"`
	Abandoned  int64      `json:"abandoned"`
	Waiting    int64      `json:"waiting"`
	Rate       thousandth `json:"rate"`
	WaitP50    float64    `json:"wait_p50_seconds"`
	WaitP90    float64    `json:"wait_p90_seconds"`
}

func (c *Console) history(w http.ResponseWriter, r *http.Request, _ *access.Person, room Room) error {
	minutes, err := wholeParameter(r, "minutes", defaultMinutes, maxMinutes)
	if err != nil {
		return err
	}
	list, err := read(r, func(ctx context.Context) ([]admission.Minute, error) { return room.Queue.History(ctx, minutes) })
	if err != nil {
		return err
	}
	answer := struct {
		Buckets []bucketView `json:"buckets"`
	}{Buckets: make([]bucketView, 0, len(list))}
	for _, m := range list {
		answer.Buckets = append(answer.Buckets, bucketView{
			At: timestamp(m.At * 1e6), Joins: m.Joins, Admissions: m.Admissions, Abandoned: m.Abandoned,
			Waiting: m.Waiting, Rate: thousandth(m.Rate),
			WaitP50: tidy(m.WaitP50.Seconds()), WaitP90: tidy(m.WaitP90.Seconds()),
		})
	}
	return ophttp.OK(w, answer)
}

type entryView struct {
	Seq    int64          `json:"seq,omitempty"` // in the chain of the room
	Hash   string         `json:"hash,omitempty"`
	At     timestamp      `json:"at"`
	Who    string         `json:"who"`
	Room   string         `json:"room"`
	Action string         `json:"action"`
	Before map[string]any `json:"before"`
	After  map[string]any `json:"after"`
	Undo   string         `json:"undo,omitempty"`   // possible, changed or never
	Undoes int64          `json:"undoes,omitempty"` // seq of the entry that was undone
}

func (c *Console) audit(w http.ResponseWriter, r *http.Request, who *access.Person) error {
	limit, err := wholeParameter(r, "limit", defaultEntries, maxEntries)
	if err != nil {
		return err
	}
	list, err := read(r, func(ctx context.Context) ([]admission.Entry, error) {
		return c.o.Core.Audit(ctx, limit, func(room string) bool { return who.May(access.Viewer, room) })
	})
	if err != nil {
		return err
	}
	answer := struct {
		Entries []entryView `json:"entries"`
	}{Entries: make([]entryView, 0, len(list))}
	snapshots := map[string]*admission.Snapshot{}
	for _, room := range c.o.Rooms() {
		snapshots[room.Queue.ID()] = room.Queue.Snapshot()
	}
	for i := range list {
		v := viewEntry(list[i])
		if s := snapshots[v.Room]; s != nil {
			v.Undo = undoable(s, &list[i])
		}
		answer.Entries = append(answer.Entries, v)
	}
	return ophttp.OK(w, answer)
}

// exportAudit sends all entries that the store keeps, by room and oldest first, as "gateway audit verify" reads them.
func (c people) exportAudit(w http.ResponseWriter, r *http.Request, who *access.Person) error {
	var lines bytes.Buffer
	for _, room := range c.o.Rooms() {
		if !who.May(access.Viewer, room.Queue.ID()) {
			continue
		}
		list, err := read(r, room.Queue.AuditLog)
		if err != nil {
			return err
		}
		for i := range list {
			lines.Write(append(ophttp.Marshal(list[i].Line()), '\n'))
		}
	}
	w.Header().Set("Content-Disposition", `attachment; filename="audit.ndjson"`)
	ophttp.Write(w, http.StatusOK, "application/x-ndjson", lines.Bytes())
	return nil
}

// viewEntry returns an entry of the audit log as the API shows it.
func viewEntry(e admission.Entry) entryView {
	v := entryView{Seq: e.Seq, Hash: e.Hash, At: timestamp(e.At * 1e6), Who: e.Who, Room: e.Room, Action: e.Action, Before: map[string]any{}, After: map[string]any{}}
	var changes []admission.Change
	v.Undoes, changes = admission.Undoes(&e)
	for _, change := range changes {
		record(v.Before, change.Field, change.Before)
		record(v.After, change.Field, change.After)
	}
	return v
}

// record adds a field of the audit log at its path in the body of a PATCH, so that sending the entry's before undoes the
// change. null: as configured.
func record(to map[string]any, field string, stored *string) {
	if group, name, nested := strings.Cut(field, "."); nested {
		inner, there := to[group].(map[string]any)
		if !there {
			inner = map[string]any{}
			to[group] = inner
		}
		inner[name] = meaning(field, stored)
		return
	}
	to[field] = meaning(field, stored)
}

// meaning converts a stored value to its form in the API. Values of an unknown form are returned as they are.
func meaning(field string, stored *string) any {
	if stored == nil {
		return nil
	}
	if field == "events" {
		if events, err := admission.ParseEvents(*stored); err == nil {
			views := make([]*eventView, len(events))
			for i := range events {
				views[i] = viewEvent(&events[i])
			}
			return views
		}
	}
	n, err := strconv.ParseInt(*stored, 10, 64)
	if err != nil {
		return *stored
	}
	switch field {
	case "rate", "burst":
		return thousandth(n)
	case "session.ttl":
		return duration(n * int64(time.Microsecond))
	case "paused", "draining", "enabled":
		return n != 0
	case "max_active", "tickets", "sessions":
		return n
	}
	return *stored
}

// wholeParameter parses a query parameter from 1 to most.
func wholeParameter(r *http.Request, name string, otherwise, most int) (int, error) {
	values, given := r.URL.Query()[name]
	if !given {
		return otherwise, nil
	}
	allowed := fmt.Sprintf("a whole number from 1 to %d", most)
	if len(values) > 1 {
		return 0, ophttp.Invalid(ophttp.Fault{Path: name, Problem: "is given more than once", Allowed: allowed})
	}
	n, err := strconv.Atoi(values[0])
	if err != nil || n < 1 || n > most {
		value, _ := json.Marshal(values[0])
		return 0, ophttp.Invalid(ophttp.Fault{Path: name, Value: value, Problem: "is not one of them", Allowed: allowed})
	}
	return n, nil
}
