package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

const (
	maxEventName = 60 // characters
	// keepEvents is how long a live event that is over stays in the calendar.
	keepEvents = 7 * 24 * time.Hour
)

// plannedView is an event of a room.
type plannedView struct {
	Room     string `json:"room"`
	Origin   string `json:"origin"`
	Live     bool   `json:"live"`               // planned by operators, not by the configuration
	Overlaps string `json:"overlaps,omitempty"` // event because of which a live one is not in force
	eventView
}

// calendar serves the planned events.
type calendar struct{ *Console }

// list responds with the planned events of the operator's rooms. Those of one room never overlap; those of rooms with the same origin may.
func (c calendar) list(w http.ResponseWriter, _ *http.Request, who *access.Person) error {
	answer := struct {
		Events []plannedView `json:"events"`
	}{Events: []plannedView{}}
	for _, room := range c.o.Rooms() {
		if who.May(access.Viewer, room.Queue.ID()) {
			answer.Events = append(answer.Events, planOf(room)...)
		}
	}
	return ophttp.OK(w, answer)
}

// planOf returns the events of a room by time, with the live ones that are not in force.
func planOf(room Room) (list []plannedView) {
	add := func(e *admission.Event, overlaps string) {
		list = append(list, plannedView{room.Queue.ID(), room.Origin, e.ID != "", overlaps, *viewEvent(e)})
	}
	plan := room.Queue.Scheduled().Plan
	var inForce []string
	for e := range plan.All() {
		add(&e, "")
		inForce = append(inForce, e.ID)
	}
	for _, e := range room.Queue.LiveEvents() {
		if !slices.Contains(inForce, e.ID) {
			overlaps := ""
			if other := plan.Overlapping(&e); other != nil {
				overlaps = nameOf(other)
			}
			add(&e, overlaps)
		}
	}
	slices.SortStableFunc(list, func(a, b plannedView) int { return cmp.Compare(a.StartsAt, b.StartsAt) })
	return list
}

// nameOf returns how a response names an event.
func nameOf(e *admission.Event) string {
	return cmp.Or(e.Name, e.ID, "the event at "+time.UnixMicro(e.Starts).UTC().Format(time.RFC3339))
}

func (c calendar) create(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	e, err := decodeEvent(r, room)
	if err != nil {
		return err
	}
	e.ID = hex.EncodeToString(id[:])
	err = c.publish(r, who, room, &e, func(events []admission.Event) ([]admission.Event, error) {
		if len(events) >= admission.MostEvents {
			return nil, ophttp.NewProblem(http.StatusConflict, "too_many_events", "the room has %d live events, and no more are kept: delete one", admission.MostEvents)
		}
		return append(events, e), nil
	})
	if err != nil {
		return err
	}
	ophttp.WriteJSON(w, http.StatusCreated, "application/json", viewEvent(&e))
	return nil
}

func (c calendar) change(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	e, err := decodeEvent(r, room)
	if err != nil {
		return err
	}
	e.ID = r.PathValue("event")
	err = c.publish(r, who, room, &e, func(events []admission.Event) ([]admission.Event, error) {
		i := slices.IndexFunc(events, func(other admission.Event) bool { return other.ID == e.ID })
		if i < 0 {
			return nil, unknownEvent()
		}
		events[i] = e
		return events, nil
	})
	if err != nil {
		return err
	}
	return ophttp.OK(w, viewEvent(&e))
}

func (c calendar) remove(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	if err := checkNoFields(r); err != nil {
		return err
	}
	id := r.PathValue("event")
	err := c.publish(r, who, room, nil, func(events []admission.Event) ([]admission.Event, error) {
		i := slices.IndexFunc(events, func(e admission.Event) bool { return e.ID == id })
		if i < 0 {
			return nil, unknownEvent()
		}
		return slices.Delete(events, i, i+1), nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func unknownEvent() error {
	return ophttp.NewProblem(http.StatusNotFound, "unknown_event", "the room has no live event with this id; events of rooms[].events change with the configuration")
}

// publish changes the live events of a room. e is the one that is new, and must not overlap another; nil: none is.
func (c calendar) publish(r *http.Request, who *access.Person, room Room, e *admission.Event, change func([]admission.Event) ([]admission.Event, error)) error {
	oldest := room.Queue.RedisNow() - keepEvents.Microseconds()
	for range attempts {
		var events []admission.Event
		var before string
		err := store(r, func(ctx context.Context) (err error) {
			events, before, err = room.Queue.ReadEvents(ctx)
			return err
		})
		if err != nil {
			return err
		}
		events = slices.DeleteFunc(events, func(e admission.Event) bool { return e.Ends < oldest })
		if e != nil {
			if other := room.File.Plan.With(events).Overlapping(e); other != nil {
				return ophttp.NewProblem(http.StatusConflict, "overlaps", "%s is planned from %s to %s; events of a room may not overlap. Choose another time, or change that event",
					nameOf(other), time.UnixMicro(other.Starts).UTC().Format(time.RFC3339), time.UnixMicro(other.Ends).UTC().Format(time.RFC3339))
			}
		}
		if events, err = change(events); err != nil {
			return err
		}
		done := false
		if err = store(r, func(ctx context.Context) (err error) {
			done, err = room.Queue.PublishEvents(ctx, who.Name, before, events)
			return err
		}); err != nil {
			return err
		}
		if done {
			c.log.InfoContext(r.Context(), "room changed", "who", who.Name, "room", room.Queue.ID(), "action", "event")
			return nil
		}
	}
	return ophttp.NewProblem(http.StatusConflict, "changed", "others change the events of this room all the time; repeat the request")
}

// decodeEvent decodes the body of a live event, which has the fields of rooms[].events.
func decodeEvent(r *http.Request, room Room) (e admission.Event, err error) {
	body, err := readObject(r, false)
	if err != nil {
		return e, err
	}
	faults := unknownFields(body, "name", "starts_at", "ends_at", "rate", "method")
	fault := func(path string, raw []byte, problem, allowed string) {
		if raw != nil {
			raw = ophttp.Excerpt(raw)
		}
		faults = append(faults, ophttp.Fault{Path: path, Value: raw, Problem: problem, Allowed: allowed})
	}
	var live admission.Live
	given := map[string][]byte{}
	ophttp.Members(body, func(name, value []byte) bool {
		given[string(name)] = value
		switch string(name) {
		case "name":
			v, isText := text(value)
			if e.Name = strings.TrimSpace(v); !isText || utf8.RuneCountInString(v) > maxEventName || strings.ContainsFunc(v, unicode.IsControl) {
				fault("name", value, "is not a name", "text of at most 60 characters without control characters")
			}
		case "starts_at":
			e.Starts = decodeMoment("starts_at", value, fault)
		case "ends_at":
			e.Ends = decodeMoment("ends_at", value, fault)
		case "rate":
			f := fieldAt["rate"]
			if wrong := f.set(&live, value); wrong != "" {
				fault("rate", value, wrong, f.allowed)
			}
		case "method":
			const allowed = "fifo, passthrough or reject"
			switch e.Method, _ = text(value); e.Method {
			case admission.FIFO, admission.Passthrough, admission.Reject:
			case admission.Lottery:
				fault("method", value, "is not planned live, because its draw is committed to before anybody joins: use rooms[].events of the configuration", allowed)
			default:
				fault("method", value, "is not a method", allowed)
			}
		}
		return true
	})
	if live.Rate != nil {
		e.Rate = *live.Rate
	}
	for _, name := range []string{"starts_at", "ends_at"} {
		if given[name] == nil {
			fault(name, nil, "is missing", momentAllowed)
		}
	}
	switch now := room.Queue.RedisNow(); {
	case len(faults) > 0:
	case e.Ends <= e.Starts:
		fault("ends_at", given["ends_at"], "is not after starts_at", "a time after it")
	case e.Ends <= now:
		fault("ends_at", given["ends_at"], "is over", "a time to come")
	case e.Rate == 0 && e.Method == "":
		fault("rate", given["rate"], "is 0 or missing, and there is no method: the event changes nothing", "a rate above 0, or a method")
	}
	if len(faults) > 0 {
		return e, ophttp.Invalid(faults...)
	}
	return e, nil
}

const momentAllowed = "RFC 3339 with a zone, such as 2027-01-31T10:00:00+09:00"

// decodeMoment decodes a time, in µs. Scripts count in µs, below 2^53.
func decodeMoment(path string, raw []byte, fault func(path string, raw []byte, problem, allowed string)) int64 {
	v, _ := text(raw)
	at, err := time.Parse(time.RFC3339, v)
	if err != nil || at.Year() < 2000 || at.Year() > 2200 {
		fault(path, raw, "is not a time from 2000 to 2200", momentAllowed)
		return 0
	}
	return at.UnixMicro()
}
