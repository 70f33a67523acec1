package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

func (c *Console) patchRoom(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	body, err := readObject(r, false)
	if err != nil {
		return err
	}
	change, faults := decodePatch(body)
	if faults = append(faults, faultsBeside(&room, &change)...); len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	if len(bytes.TrimSpace(body[1:len(body)-1])) == 0 {
		return ophttp.OK(w, c.view(room))
	}
	return c.change(w, r, who, room, "patch", func(ctx context.Context) error {
		return room.Queue.Patch(ctx, who.Name, change)
	})
}

// minSilence is the shortest session.ttl with session.renew: server, as in the file.
const minSilence = 4 * time.Second

// faultsBeside returns what is wrong with a change beside the file of its room.
func faultsBeside(room *Room, change *admission.Live) (faults []ophttp.Fault) {
	file := &room.File
	if m := change.Method; m != nil && *m == admission.Lottery && !mayDraw(file) {
		faults = append(faults, ophttp.Fault{Path: "method", Value: []byte(`"lottery"`), Problem: "needs queue.opens_at and queue.draw_secret_file in the file",
			Allowed: "fifo, passthrough or reject"})
	}
	if ttl := change.SessionTTL; ttl != nil && *ttl < minSilence && file.PassLife > 0 {
		faults = append(faults, ophttp.Fault{Path: "session.ttl", Value: []byte(strconv.Quote(ttl.String())), Problem: "is too small with session.renew: server",
			Allowed: "4s to 24h"})
	}
	if level := change.Challenge; level != nil && !slices.Contains(room.Levels, *level) {
		faults = append(faults, ophttp.Fault{Path: "challenge", Value: []byte(strconv.Quote(*level)), Problem: "needs a page that loads the script of the challenge: add {{.Guard}} to page.template_file",
			Allowed: cmp.Or(strings.Join(room.Levels, ", "), "none")})
	}
	return faults
}

func (c *Console) pause(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	return c.plainAction(w, r, who, room, "pause", room.Queue.Pause)
}

func (c *Console) resume(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	return c.plainAction(w, r, who, room, "resume", room.Queue.Resume)
}

func (c *Console) drain(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	return c.plainAction(w, r, who, room, "drain", room.Queue.Drain)
}

// plainAction serves an action without a body, or with an empty object.
func (c *Console) plainAction(w http.ResponseWriter, r *http.Request, who *access.Person, room Room, action string, do func(context.Context, string) error) error {
	if err := checkNoFields(r); err != nil {
		return err
	}
	return c.change(w, r, who, room, action, func(ctx context.Context) error { return do(ctx, who.Name) })
}

// change calls do and responds with the changed room: a change is done only when this gateway's snapshot has it.
func (c *Console) change(w http.ResponseWriter, r *http.Request, who *access.Person, room Room, action string, do func(context.Context) error) error {
	if err := store(r, do); err != nil {
		return err
	}
	c.log.InfoContext(r.Context(), "room changed", "who", who.Name, "room", room.Queue.ID(), "action", action)
	return ophttp.OK(w, c.view(room))
}

func (c *Console) reset(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	body, err := readObject(r, true)
	if err != nil {
		return err
	}
	confirmed, faults := onlyText(body, "confirm")
	if confirmed != room.Queue.ID() {
		faults = append(faults, ophttp.Fault{Path: "confirm", Problem: "does not confirm that everyone in this room loses their place", Allowed: `the room's id, "` + room.Queue.ID() + `"`})
	}
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	if asked, err := (approvals{c}).askSecond(w, r, who, room, "reset", body); asked || err != nil {
		return err
	}
	return c.change(w, r, who, room, "reset", func(ctx context.Context) error { return room.Queue.Reset(ctx, who.Name) })
}

// store calls do with a deadline.
func store(r *http.Request, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	return do(ctx)
}

// read returns the result of get, which has a deadline.
func read[T any](r *http.Request, get func(context.Context) (T, error)) (result T, err error) {
	err = store(r, func(ctx context.Context) (err error) {
		result, err = get(ctx)
		return err
	})
	return result, err
}

// checkNoFields returns an error for a body other than an empty one or an empty object.
func checkNoFields(r *http.Request) error {
	body, err := readObject(r, true)
	if err != nil {
		return err
	}
	if faults := unknownFields(body); len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	return nil
}

// onlyText returns the text of a body's only field, and the faults of its other fields.
func onlyText(body []byte, field string) (value string, faults []ophttp.Fault) {
	ophttp.Members(body, func(name, raw []byte) bool {
		if string(name) == field {
			value, _ = text(raw)
		}
		return true
	})
	return value, unknownFields(body, field)
}

func unknownFields(body []byte, known ...string) (faults []ophttp.Fault) {
	allowed := cmp.Or(strings.Join(known, ", "), "no body, or {}")
	ophttp.Members(body, func(name, _ []byte) bool {
		if !slices.Contains(known, string(name)) {
			faults = append(faults, ophttp.Fault{Path: string(name), Problem: "is not a field of this request", Allowed: allowed})
		}
		return true
	})
	return faults
}

// ticketView is a ticket in the store.
type ticketView struct {
	JTI        string     `json:"jti"`
	Room       string     `json:"room"`
	State      string     `json:"state"`
	Reason     string     `json:"reason,omitempty"`
	Parked     bool       `json:"parked"`
	Position   *int64     `json:"position,omitempty"`
	Ahead      *int64     `json:"ahead,omitempty"`
	Order      int64      `json:"order,omitempty"` // order time, µs
	Seen       int64      `json:"seen,omitempty"`  // order time, µs
	Waited     *float64   `json:"waited_seconds,omitempty"`
	SeenAgo    *float64   `json:"seen_seconds_ago,omitempty"`
	AdmittedAt *timestamp `json:"admitted_at,omitempty"`
}

var stateNames = map[admission.State]string{
	admission.Waiting: "waiting", admission.Admitted: "admitted", admission.Active: "active",
	admission.Expired: "expired", admission.Lapsed: "lapsed", admission.Ended: "ended",
}

// tickets serves the routes of single tickets and sessions.
type tickets struct{ *Console }

func (c tickets) showTicket(w http.ResponseWriter, r *http.Request, _ *access.Person, room Room) error {
	id, err := parseID(r.PathValue("jti"))
	if err != nil {
		return err
	}
	found, err := read(r, func(ctx context.Context) (admission.Found, error) { return room.Queue.Lookup(ctx, id) })
	if err != nil {
		return err
	}
	return ophttp.OK(w, viewTicket(room, id, found))
}

func viewTicket(room Room, id admission.ID, found admission.Found) ticketView {
	v := ticketView{
		JTI: id.String(), Room: room.Queue.ID(), State: stateNames[found.State], Reason: found.Reason,
		Parked: found.Parked, Order: found.Order, Seen: found.Seen, AdmittedAt: optional(found.AdmittedAt),
	}
	now := room.Queue.Now()
	if found.State == admission.Waiting {
		v.Waited = ago(now, found.Order)
		v.SeenAgo = ago(now, found.Seen)
		if !found.Parked { // a parked ticket has no position until its next poll
			v.Ahead, v.Position = new(found.Ahead), new(found.Ahead+1)
		}
	}
	return v
}

// maxAccount is the longest name of an account, in bytes, as on the visitors' side.
const maxAccount = 256

// findTickets responds with the tickets of an account.
func findTickets(w http.ResponseWriter, r *http.Request, _ *access.Person, room Room) error {
	names := r.URL.Query()["account"]
	if len(names) != 1 || names[0] == "" || len(names[0]) > maxAccount {
		return ophttp.Invalid(ophttp.Fault{Path: "account", Problem: "is missing, empty, too long or given twice", Allowed: "the name of one account, at most 256 bytes"})
	}
	var ids []admission.ID
	if room.Account != nil {
		ids = room.Account(names[0])
	}
	if len(ids) == 0 {
		return ophttp.NewProblem(http.StatusConflict, "no_accounts", "the room %q does not keep one place for each account: set identity.one_place, or look up the ticket by its id", room.Queue.ID())
	}
	answer := struct {
		Tickets []ticketView `json:"tickets"`
	}{Tickets: []ticketView{}}
	err := store(r, func(ctx context.Context) error {
		for _, id := range ids {
			found, err := room.Queue.Lookup(ctx, id)
			switch {
			case errors.Is(err, admission.ErrUnknown):
			case err != nil:
				return err
			default:
				answer.Tickets = append(answer.Tickets, viewTicket(room, id, found))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return ophttp.OK(w, answer)
}

func ago(now, then int64) *float64 {
	if then <= 0 {
		return nil
	}
	return new(tidy(float64(max(0, now-then)) / 1e6))
}

func (c tickets) removeTicket(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	return c.onID(w, r, who, room, "jti", "remove ticket", room.Queue.RemoveTicket)
}

func (c tickets) revokeSession(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	return c.onID(w, r, who, room, "sid", "revoke session", room.Queue.RevokeSession)
}

func (c tickets) onID(w http.ResponseWriter, r *http.Request, who *access.Person, room Room, key, action string, do func(context.Context, string, admission.ID) error) error {
	id, err := parseID(r.PathValue(key))
	if err != nil {
		return err
	}
	if err := checkNoFields(r); err != nil {
		return err
	}
	if err := store(r, func(ctx context.Context) error { return do(ctx, who.Name, id) }); err != nil {
		return err
	}
	c.log.InfoContext(r.Context(), "room changed", "who", who.Name, "room", room.Queue.ID(), "action", action, key, id.String())
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// parseID parses an id in the form of tokens.
func parseID(text string) (admission.ID, error) {
	var id admission.ID
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != len(id) {
		return id, ophttp.NewProblem(http.StatusNotFound, "unknown_ticket", "not the id of a ticket or session, which has 22 characters of base64url")
	}
	copy(id[:], raw)
	return id, nil
}
