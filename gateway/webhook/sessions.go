package webhook

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/outbox"
)

const (
	// SessionEnded is sent only to endpoints that name it.
	SessionEnded = "session.ended"

	// endingWithin is how long before its end a session is recorded as ending. It is longer than another gateway takes to take over.
	endingWithin = 15 * time.Second
	// sessionBatch is the most sessions in one event.
	sessionBatch = 500
)

func sessionsField(room string) string { return join("sessions", room) }

// ends is the recorded state of the sessions of a room: those that end soon, and the room time up to which revocations were reported.
type ends struct {
	until  int64
	ending []admission.ID
}

func (e *ends) text() string {
	var b strings.Builder
	b.WriteString(strconv.FormatInt(e.until, 10))
	for _, id := range e.ending {
		b.WriteByte(' ')
		b.WriteString(id.String())
	}
	return b.String()
}

// parseEnds reads what text wrote; the zero value for anything else.
func parseEnds(text string) (e ends) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return ends{}
	}
	var err error
	if e.until, err = strconv.ParseInt(words[0], 10, 64); err != nil || e.until < 0 {
		return ends{}
	}
	for _, word := range words[1:] {
		id, ok := admission.ParseID(word)
		if !ok {
			return ends{}
		}
		e.ending = append(e.ending, id)
	}
	return e
}

// sessionNotes returns the changes that report the sessions of the rooms which have ended since what is recorded. A room whose sessions cannot
// be read is left out: the next turn reads them.
func sessionNotes(ctx context.Context, now time.Time, rooms []Room, recorded map[string]string, endpoints []Endpoint) (notes []outbox.Change) {
	for i := range rooms {
		r := &rooms[i]
		to := wanting(endpoints, SessionEnded, r.ID)
		if len(to) == 0 || !r.Up || !r.Snapshot.Known || r.SessionEnds == nil {
			continue
		}
		field := sessionsField(r.ID)
		was := recorded[field]
		before := parseEnds(was)
		found, err := r.SessionEnds(ctx, before.ending, before.until, endingWithin)
		if err != nil {
			continue
		}
		is := ends{until: found.Until, ending: found.Ending}
		list := endedSessions(&found)
		if is.text() == was {
			continue
		}
		notes = append(notes, sessionChanges(now, r, was, is.text(), list, to)...)
	}
	return notes
}

// endedSessions returns the sessions of an event, each once.
func endedSessions(found *admission.SessionEnds) (list []map[string]any) {
	revoked := map[admission.ID]bool{}
	for _, id := range found.Revoked {
		revoked[id] = true
		list = append(list, map[string]any{"id": id.String(), "reason": "revoked"})
	}
	for _, id := range found.Gone {
		if !revoked[id] {
			list = append(list, map[string]any{"id": id.String(), "reason": "expired"})
		}
	}
	return list
}

// sessionChanges returns the change from one recorded state to the next with an event for each batch of the list. The changes depend on each
// other, so that all happen or none.
func sessionChanges(now time.Time, r *Room, was, is string, list []map[string]any, to []string) (notes []outbox.Change) {
	const initial = "none"
	expected := cmp.Or(was, initial)
	for n := 0; ; n++ {
		batch := list[:min(len(list), sessionBatch)]
		list = list[len(batch):]
		c := outbox.Change{Field: sessionsField(r.ID), Expected: expected, Initial: initial, Value: is}
		if len(list) > 0 {
			c.Value = "batch " + strconv.Itoa(n)
		}
		if len(batch) > 0 {
			e := event{SessionEnded, r.ID, now, map[string]any{"sessions": batch}, append(r.marks(), strconv.Itoa(n))}
			c.ID, c.Body, c.Endpoints = e.id(), e.body(), to
		}
		notes = append(notes, c)
		if len(list) == 0 {
			return notes
		}
		expected = c.Value
	}
}
