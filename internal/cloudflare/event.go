package cloudflare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/internal/settings"
)

// events converts the events of a room.
func (i *importer) events(o *object, r *room) {
	for n, e := range o.list("events") {
		e.at = settings.Element(o.field("events"), n)
		if v := e.object(i); v != nil {
			i.event(v, r)
		}
	}
	slices.SortStableFunc(r.Events, func(a, b event) int { return cmp.Compare(a.begins.UnixMicro(), b.begins.UnixMicro()) })
	var last time.Time
	r.Events = slices.DeleteFunc(r.Events, func(e event) bool {
		if e.begins.Before(last) {
			o.note("events", e.Name, "begins at "+e.begins.Format(time.RFC3339)+", before the end of the previous event; events of a room may not overlap, so this one is left out")
			return true
		}
		last = e.ends
		return false
	})
	if slices.ContainsFunc(r.Events, func(e event) bool { return e.Method == methodLottery }) {
		r.Queue.DrawSecretFile = i.options.DrawSecretFile
	}
}

func (i *importer) event(o *object, r *room) {
	e := event{Name: o.text("name")}
	starts, ends, prequeue := o.moment("event_start_time"), o.moment("event_end_time"), o.moment("prequeue_start_time")
	o.skip("id", "created_on", "modified_on", "description")
	perMinute := o.number("new_users_per_minute", 1, maxPerMinute)
	if perMinute > 0 {
		e.Rate = perSecond(perMinute)
	}
	method, shuffle := o.text("queueing_method"), o.flag("shuffle_at_event_start")
	if n := o.number("total_active_users", 1, maxUsers); n > 0 && n != r.Admission.MaxActive {
		o.note("total_active_users", fmt.Sprint(n), `an event changes rate and method only; change max_active at the start with PATCH /admin/v1/rooms/`+r.ID+` {"max_active":`+fmt.Sprint(n)+`}`)
	}
	if n := o.number("session_duration", 1, maxSession); n > 0 && minutes(n) != r.Session.TTL {
		o.note("session_duration", fmt.Sprint(n), `an event changes rate and method only; change the session at the start with PATCH /admin/v1/rooms/`+r.ID+` {"session":{"ttl":"`+fmt.Sprint(n)+`m"}}`)
	}
	if o.has("disable_session_renewal") {
		if off := o.flag("disable_session_renewal"); off == r.Session.Renew {
			o.note("disable_session_renewal", fmt.Sprint(off), "an event changes rate and method only; session.renew of the room applies")
		}
	}
	if html := o.text("custom_page_html"); html != "" {
		o.note("custom_page_html", html, "an event has no page of its own; page.message of the room can be changed live")
	}
	for _, name := range []string{"turnstile_mode", "turnstile_action"} {
		if text := o.text(name); text != "" {
			o.note(name, text, "an event has no guard of its own; set guard in the room")
		}
	}
	suspended := o.flag("suspended")
	if o.rest(); i.err != nil {
		return
	}
	switch {
	case starts.IsZero():
		i.fail(o.field("event_start_time"), "is missing")
		return
	case ends.IsZero():
		i.fail(o.field("event_end_time"), "is missing")
		return
	case !ends.After(starts):
		i.fail(o.field("event_end_time"), "%s is not after event_start_time (%s)", ends.Format(time.RFC3339), starts.Format(time.RFC3339))
		return
	case !prequeue.IsZero() && !prequeue.Before(starts):
		i.fail(o.field("prequeue_start_time"), "%s is not before event_start_time (%s)", prequeue.Format(time.RFC3339), starts.Format(time.RFC3339))
		return
	case suspended:
		o.note("suspended", "true", "the event is left out; add it to events of the room when you need it")
		return
	}
	if !i.eventMethod(o, r, &e, method, prequeue, shuffle) {
		return
	}
	if e.Method == "" && e.Rate == 0 {
		o.note("name", e.Name, "the event changes neither rate nor method, so it is left out")
		return
	}
	e.StartsAt, e.EndsAt = starts.Format(time.RFC3339Nano), ends.Format(time.RFC3339Nano)
	e.begins, e.ends = starts, ends
	if e.PrequeueAt != "" {
		e.begins = prequeue
	}
	r.Events = append(r.Events, e)
}

// eventMethod sets the method and the pre-queue of an event, and reports whether the event can be converted.
func (i *importer) eventMethod(o *object, r *room, e *event, method string, prequeue time.Time, shuffle bool) bool {
	inherited := method == ""
	if inherited {
		method = r.Queue.Method
	}
	switch method {
	case methodFIFO, methodPassthrough, methodReject, methodRandom:
	default:
		o.note("queueing_method", method, "is not a method that the import knows; the room's method applies")
		method, inherited = r.Queue.Method, true
	}
	queues := method == methodFIFO || method == methodRandom
	switch {
	case !prequeue.IsZero() && queues && (shuffle || method == methodRandom):
		if i.options.DrawSecretFile == "" {
			o.note("shuffle_at_event_start", fmt.Sprint(shuffle), "needs a lottery, and a lottery needs a secret, so the event is left out. Create a secret with: head -c 32 /dev/urandom | base64 > draw.secret, and import with --draw-secret-file draw.secret")
			return false
		}
		e.Method, e.PrequeueAt = methodLottery, prequeue.Format(time.RFC3339Nano)
		if method == methodRandom {
			o.note("queueing_method", method, "imported as a lottery: it draws the order of visitors who come before the start; later ones follow in order of arrival")
		}
		return true
	case !prequeue.IsZero():
		o.note("prequeue_start_time", prequeue.Format(time.RFC3339), "only a lottery has a pre-queue, so it is left out. To queue in order of arrival before the start, pause the room until then: POST /admin/v1/rooms/"+r.ID+"/pause and /resume")
	}
	if method == methodRandom {
		o.note("queueing_method", method, "there is no continuous random order; imported as fifo")
		method, inherited = methodFIFO, r.Queue.Method == methodFIFO
	}
	if !inherited && !strings.EqualFold(method, r.Queue.Method) {
		e.Method = method
	}
	return true
}
