package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/anteroom/anteroom/internal/settings"
)

// queue checks the room's lottery and its opening.
func (c roomChecker) queue(at string) {
	q := &c.room.Queue
	opens := c.moment(at+".opens_at", q.OpensAt)
	gathers := c.moment(at+".prequeue_at", q.PrequeueAt)
	switch {
	case q.Method == methodLottery && q.OpensAt == "":
		c.Add(at+".opens_at", "is missing: a lottery needs the time at which it opens, such as 2027-01-31T10:00:00+09:00")
	case q.PrequeueAt != "" && q.OpensAt == "":
		c.Add(at+".prequeue_at", "is set without opens_at: a pre-queue ends with an opening")
	case !opens.IsZero() && !gathers.IsZero() && !gathers.Before(opens):
		c.Add(at+".prequeue_at", "%s is not before opens_at (%s)", q.PrequeueAt, q.OpensAt)
	}
	draws := q.Method == methodLottery || q.OpensAt != "" || slices.ContainsFunc(c.room.Events, func(e Event) bool { return e.Method == methodLottery })
	switch {
	case q.DrawSecretFile != "":
		if _, err := c.room.DrawSecret(); err != nil {
			c.Add(at+".draw_secret_file", "%v", err)
		}
	case draws && q.Method != methodLottery && q.OpensAt != "":
		c.Add(at+".draw_secret_file", "is missing: opens_at is for method: lottery, which is drawn with a secret; leave opens_at out, or make one with: head -c 32 /dev/urandom | base64 > draw.secret")
	case draws:
		c.Add(at+".draw_secret_file", "is missing: a lottery is drawn with a secret; make one with: head -c 32 /dev/urandom | base64 > draw.secret")
	}
}

// events checks each event, and that no two overlap.
func (c roomChecker) events(at string) {
	type event struct {
		i    int
		span Span
	}
	var all []event
	for i := range c.room.Events {
		e, at := &c.room.Events[i], settings.Element(at, i)
		before := len(c.List)
		span := Span{
			Starts: c.moment(at+".starts_at", e.StartsAt), Ends: c.moment(at+".ends_at", e.EndsAt), Gathers: c.moment(at+".prequeue_at", e.PrequeueAt),
		}
		for _, field := range []struct{ name, text string }{{"starts_at", e.StartsAt}, {"ends_at", e.EndsAt}} {
			if field.text == "" {
				c.Add(at+"."+field.name, "is missing; use RFC 3339 with a zone, such as 2027-01-31T10:00:00+09:00")
			}
		}
		switch {
		case e.Method == methodLottery && e.PrequeueAt == "":
			c.Add(at+".prequeue_at", "is missing: a lottery needs a pre-queue")
		case e.Method != methodLottery && e.PrequeueAt != "":
			c.Add(at+".prequeue_at", "is for method: lottery; leave it out, or set the method")
		case e.Method == "" && e.Rate == 0:
			c.Add(at, "changes nothing; give it a rate or a method")
		}
		if len(c.List) > before {
			continue
		}
		if !span.Ends.After(span.Starts) {
			c.Add(at+".ends_at", "%s is not after starts_at (%s)", e.EndsAt, e.StartsAt)
			continue
		}
		if e.PrequeueAt != "" && !span.Gathers.Before(span.Starts) {
			c.Add(at+".prequeue_at", "%s is not before starts_at (%s)", e.PrequeueAt, e.StartsAt)
			continue
		}
		all = append(all, event{i, span})
	}
	slices.SortFunc(all, func(a, b event) int { return cmp.Compare(a.span.begins().UnixMicro(), b.span.begins().UnixMicro()) })
	for i, last := 1, 0; i < len(all); i++ {
		a, b := all[last], all[i]
		if b.span.begins().Before(a.span.Ends) {
			c.Add(settings.Element(at, b.i), "begins (%s, prequeue included) before %s has ended (%s); events of a room may not overlap, as %q and %q do",
				b.span.begins().Format(time.RFC3339), settings.Element("events", a.i), a.span.Ends.Format(time.RFC3339), c.room.Events[b.i].Name, c.room.Events[a.i].Name)
		}
		if b.span.Ends.After(a.span.Ends) {
			last = i // the latest end so far
		}
	}
}

func (c checker) moment(at, text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	moment, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		c.Add(at, "%q is not a time; use RFC 3339 with a zone, such as 2027-01-31T10:00:00+09:00", settings.Clip(text))
	case moment.Year() < 2000 || moment.Year() > 2200: // scripts count in µs, below 2^53
		c.Add(at, "%s: use a year from 2000 to 2200", text)
		return time.Time{}
	}
	return moment
}
