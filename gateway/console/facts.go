package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/gateway/facts"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// publisher has the requests about what a room publishes.
type publisher struct{ *Console }

// factsSummary is what a room's view has of its facts.
type factsSummary struct {
	Version string `json:"version"`
	Hash    string `json:"hash"`
	Items   int    `json:"items"`
	SoldOut bool   `json:"sold_out"` // every item
	Notices int    `json:"notices"`
}

func summarize(f *admission.Facts) *factsSummary {
	d, err := facts.Parse(f.Text)
	if f.Text == "" || err != nil {
		return nil
	}
	return &factsSummary{Version: facts.Version(f.Hash), Hash: f.Hash, Items: len(d.Items), SoldOut: d.SoldOut(), Notices: len(d.Notices)}
}

// factsView is the facts of a room. The version is that of the status object, and the hash that of the audit log.
type factsView struct {
	Version string       `json:"version,omitempty"`
	Hash    string       `json:"hash,omitempty"`
	SoldOut bool         `json:"sold_out"`
	Items   []facts.Item `json:"items"`
}

func (c publisher) show(w http.ResponseWriter, r *http.Request, _ *access.Person, room Room) error {
	text, d, err := readFacts(r, room)
	if err != nil {
		return err
	}
	return sendFacts(w, text, &d)
}

func sendFacts(w http.ResponseWriter, text string, d *facts.Document) error {
	hash := facts.Hash(text)
	w.Header().Set("ETag", etag(d.Items))
	return ophttp.OK(w, factsView{Version: facts.Version(hash), Hash: hash, SoldOut: d.SoldOut(), Items: d.Items})
}

func (c publisher) put(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	body, err := readFactsBody(r)
	if err != nil {
		return err
	}
	items, faults := decodeItems(body)
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	text, d, err := c.publish(r, who, room, facts.ActionFacts, func(d *facts.Document) error {
		if err := checkMatch(r, d.Items); err != nil {
			return err
		}
		d.Items = items
		return nil
	})
	if err != nil {
		return err
	}
	return sendFacts(w, text, &d)
}

func (c publisher) listNotices(w http.ResponseWriter, r *http.Request, _ *access.Person, room Room) error {
	_, d, err := readFacts(r, room)
	if err != nil {
		return err
	}
	list := struct {
		Notices []facts.Notice `json:"notices"`
	}{d.Notices}
	return ophttp.OK(w, list)
}

func (c publisher) showNotice(w http.ResponseWriter, r *http.Request, _ *access.Person, room Room) error {
	_, d, err := readFacts(r, room)
	if err != nil {
		return err
	}
	return sendNotice(w, r, &d)
}

func sendNotice(w http.ResponseWriter, r *http.Request, d *facts.Document) error {
	n := d.Notice(r.PathValue("notice"))
	if n == nil {
		return unknownNotice()
	}
	w.Header().Set("ETag", etag(n))
	return ophttp.OK(w, n)
}

func unknownNotice() error {
	return ophttp.NewProblem(http.StatusNotFound, "unknown_notice", "the room has no notice with this id, or its time is over")
}

func (c publisher) putNotice(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	id := r.PathValue("notice")
	if wrong := facts.CheckID(id); wrong != "" {
		return ophttp.Invalid(ophttp.Fault{Path: "id", Value: ophttp.Marshal(id), Problem: wrong, Allowed: "an id such as late-opening"})
	}
	body, err := readFactsBody(r)
	if err != nil {
		return err
	}
	notice, faults := decodeNotice(id, body)
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	_, d, err := c.publish(r, who, room, facts.ActionNotice, func(d *facts.Document) error {
		former := d.Notice(id)
		if err := checkMatch(r, former); err != nil {
			return err
		}
		if former != nil {
			*former = notice
			return nil
		}
		if len(d.Notices) >= facts.MaxNotices {
			return ophttp.NewProblem(http.StatusConflict, "too_many_notices", "the room has %d notices, and no more are kept: delete one", facts.MaxNotices)
		}
		d.Notices = append(d.Notices, notice)
		return nil
	})
	if err != nil {
		return err
	}
	return sendNotice(w, r, &d)
}

func (c publisher) removeNotice(w http.ResponseWriter, r *http.Request, who *access.Person, room Room) error {
	if err := checkNoFields(r); err != nil {
		return err
	}
	id := r.PathValue("notice")
	_, _, err := c.publish(r, who, room, facts.ActionNotice, func(d *facts.Document) error {
		former := d.Notice(id)
		if former == nil {
			return unknownNotice()
		}
		if err := checkMatch(r, former); err != nil {
			return err
		}
		d.Notices = slices.DeleteFunc(d.Notices, func(n facts.Notice) bool { return n.ID == id })
		return nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func readFactsBody(r *http.Request) ([]byte, error) {
	if err := ophttp.CheckContentType(r, false, ophttp.JSONTypes...); err != nil {
		return nil, err
	}
	body, err := ophttp.ReadObjectOf(r, facts.MaxBody, false)
	if err != nil {
		return nil, err
	}
	if err := checkNames(body, "", 1); err != nil {
		return nil, ophttp.NewProblem(http.StatusBadRequest, "bad_json", "%s", err)
	}
	return body, nil
}

// readFacts returns the facts in the store, without notices whose time is over.
func readFacts(r *http.Request, room Room) (string, facts.Document, error) {
	text, err := read(r, room.Queue.ReadFacts)
	if err != nil {
		return "", facts.Document{}, err
	}
	d, err := facts.Parse(text)
	return text, d.Current(time.UnixMicro(room.Queue.RedisNow())), err
}

// attempts is how often a change is repeated if others change the facts at the same time.
const attempts = 8

// publish changes the facts of a room and returns them. A change that leaves them as they are writes nothing.
func (c publisher) publish(r *http.Request, who *access.Person, room Room, action string, change func(*facts.Document) error) (string, facts.Document, error) {
	for range attempts {
		before, d, err := readFacts(r, room)
		if err != nil {
			return "", d, err
		}
		was, err := facts.Parse(before)
		if err != nil {
			return "", d, err
		}
		if err := change(&d); err != nil {
			return "", d, err
		}
		text := d.Text()
		if len(text) > facts.MaxText {
			return "", d, ophttp.NewProblem(http.StatusRequestEntityTooLarge, "too_large", "items and notices together are longer than %d bytes", facts.MaxText)
		}
		if text == before || before == "" && len(d.Items) == 0 && len(d.Notices) == 0 {
			return before, d, nil
		}
		done := false
		err = store(r, func(ctx context.Context) (err error) {
			done, err = room.Queue.PublishFacts(ctx, who.Name, action, admission.Facts{Text: before, SoldOut: was.SoldOut()},
				admission.Facts{Text: text, Hash: facts.Hash(text), SoldOut: d.SoldOut()})
			return err
		})
		if err != nil {
			return "", d, err
		}
		if done {
			c.log.InfoContext(r.Context(), "room changed", "who", who.Name, "room", room.Queue.ID(), "action", action, "facts", facts.Hash(text))
			return text, d, nil
		}
	}
	return "", facts.Document{}, ophttp.NewProblem(http.StatusConflict, "changed", "others change the facts of this room all the time; repeat the request")
}

func etag(part any) string { return `"` + facts.Tag(part) + `"` }

// checkMatch returns an error if the request's If-Match names another version of a part of the facts.
func checkMatch(r *http.Request, part any) error {
	tags := strings.Join(r.Header.Values("If-Match"), ",")
	if tags == "" {
		return nil
	}
	now := etag(part)
	for tag := range strings.SplitSeq(tags, ",") {
		if tag = strings.TrimSpace(tag); tag == now || tag == "*" && now != `"none"` {
			return nil
		}
	}
	return ophttp.NewProblem(http.StatusPreconditionFailed, "changed", "the present version is %s, and If-Match names another; nothing was changed", now)
}
