package reason

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/admission/policy"
)

// rules are the causes in the order in which they are looked for; each reports whether it holds.
var rules = []func(*Facts) (Reason, bool){
	storeAway, open, closed, paused, beforeOpening, recovering, rateZero, full, queueEmpty, minWait, absent, budgetLost, byHealth, budget,
}

func storeAway(f *Facts) (Reason, bool) {
	s := f.Snapshot
	if s.Known && !f.Away {
		return Reason{}, false
	}
	newcomers := map[string]string{
		policy.OnErrorOpen:   "every new visitor passes",
		policy.OnErrorClosed: "new visitors are refused",
		policy.OnErrorLocal:  "each gateway admits by its own part of the rate",
	}[s.Policy.OnStoreError]
	newcomers = cmp.Or(newcomers, "new visitors wait")
	newcomers += " (on_store_error: " + cmp.Or(s.Policy.OnStoreError, policy.OnErrorWait) + ")"
	r := Reason{Code: StoreAway, Text: "Not admitting from the queue: the store does not reply; passes work, places are kept, " + newcomers}
	if !s.Known {
		r = Reason{Code: StoreUnknown, Text: "Not admitting from the queue: this gateway has not reached the store since its start; passes work, " + newcomers}
	}
	return r, true
}

func open(f *Facts) (Reason, bool) {
	switch p := &f.Snapshot.Policy; {
	case !p.Enabled:
		return Reason{Code: Off, Admitting: true, Who: f.change("enabled").Who, Text: "Every visitor passes: the room is switched off (enabled: false)" + f.by("enabled")}, true
	case p.Method == policy.Passthrough:
		return Reason{Code: Passthrough, Admitting: true, Who: f.change("method").Who, Text: "Every visitor passes: method passthrough" + f.byEvent() + f.by("method")}, true
	}
	return Reason{}, false
}

func closed(f *Facts) (Reason, bool) {
	if f.Snapshot.Policy.Method != policy.Reject {
		return Reason{}, false
	}
	r := Reason{Code: Closed, Until: f.Next, Who: f.change("method").Who, Text: "Not admitting: the room is closed (method reject)" + f.byEvent() + f.by("method")}
	if f.SoldOut {
		r.Code, r.Text = SoldOut, "Not admitting: all is sold out and the room is closed"
	}
	if f.Next > f.Now {
		r.Text += "; it opens in " + span(f.Next-f.Now)
	}
	return r, true
}

func paused(f *Facts) (Reason, bool) {
	if !f.Snapshot.Policy.Paused {
		return Reason{}, false
	}
	by := f.change("paused")
	r := Reason{Code: Paused, Text: "Paused", Who: by.Who, Since: by.At}
	if r.Who != "" {
		r.Text += " by " + r.Who
	}
	if r.Since > 0 {
		r.Text += " " + span(f.Now-r.Since) + " ago"
	}
	if n := f.Snapshot.Waiting; n > 0 {
		r.Text += ": " + count(n, "visitor waits", "visitors wait")
	}
	return r, true
}

func beforeOpening(f *Facts) (Reason, bool) {
	s := f.Snapshot
	if !s.Gathering() {
		return Reason{}, false
	}
	r := Reason{Code: BeforeOpening, Until: s.Policy.OpensAt, Text: "Not admitting: the lottery opens now"}
	if left := s.Policy.OpensAt - f.Now; left > 0 {
		r.Text = "Not admitting: the lottery opens at " + clock(s.Policy.OpensAt) + ", in " + span(left)
	}
	if early := s.Policy.PrequeueAt - f.Now; early > 0 {
		r.Text += "; the pre-queue opens in " + span(early)
	} else {
		r.Text += "; " + count(s.Prequeued, "visitor has gathered", "visitors have gathered")
	}
	return r, true
}

func recovering(f *Facts) (Reason, bool) {
	s := f.Snapshot
	left := s.Hold - s.RoomTime - max(0, f.Now-s.RedisTime)
	if s.RoomTime >= s.Hold || left <= 0 {
		return Reason{}, false
	}
	return Reason{Code: Recovering, Until: f.Now + left, Text: "Not admitting for " + span(left) + ": the store is back after an outage, and visitors report again first"}, true
}

func rateZero(f *Facts) (Reason, bool) {
	if f.Snapshot.Policy.Rate > 0 {
		return Reason{}, false
	}
	return Reason{Code: RateZero, Who: f.change("rate").Who, Text: "Not admitting: the rate is 0" + f.by("rate")}, true
}

func full(f *Facts) (Reason, bool) {
	s := f.Snapshot
	most, inside := s.Policy.MaxActive, s.Admitted+s.Active
	if most == 0 || inside < most {
		return Reason{}, false
	}
	r := Reason{Code: MaxActive, Who: f.change("max_active").Who, Text: fmt.Sprintf("Not admitting: max_active %s of %s reached", number(inside), number(most))}
	if s.Admitted > 0 {
		r.Text += ", of which " + number(s.Admitted) + " not claimed yet"
	}
	if f.NextEnd > 0 {
		r.Text, r.Until = r.Text+"; the next session ends in about "+span(f.NextEnd.Microseconds()), f.Now+f.NextEnd.Microseconds()
	}
	return r, true
}

func queueEmpty(f *Facts) (Reason, bool) {
	s := f.Snapshot
	switch {
	case s.Waiting > 0:
		return Reason{}, false
	case s.Policy.Draining:
		return Reason{Code: Draining, Who: f.change("draining").Who, Text: "Nobody waits and nobody joins: the room is draining" + f.by("draining")}, true
	}
	r := Reason{Code: NobodyWaits, Admitting: true, Text: "Nobody waits: up to " + perSecond(f.rate()) + " are admitted immediately"}
	if s.Parked > 0 {
		r.Text += "; " + count(s.Parked, "absent visitor keeps a place", "absent visitors keep their places")
	}
	return r, true
}

func minWait(f *Facts) (Reason, bool) {
	s := f.Snapshot
	from := max(s.Oldest, s.Drawn)
	left := s.Policy.MinWait.Microseconds() - s.Elapsed(from, s.Time).Microseconds() - max(0, f.Now-s.RedisTime)
	if s.Policy.MinWait == 0 || s.Oldest == 0 || left <= 0 {
		return Reason{}, false
	}
	return Reason{Code: MinWait, Until: f.Now + left, Text: "Not admitting: the first visitor has waited less than min_wait " + s.Policy.MinWait.String() + ", for " + span(left) + " more"}, true
}

// absent holds if all of the nearest tickets are absent: they are parked one after another.
func absent(f *Facts) (Reason, bool) {
	holds := f.Snapshot.Holds
	if len(holds) == 0 || slices.ContainsFunc(holds, func(h int64) bool { return h != 0 }) {
		return Reason{}, false
	}
	return Reason{Code: Absent, Text: "Not admitting: none of the first " + number(int64(len(holds))) + " visitors has polled lately; they are passed over and keep their places"}, true
}

func budgetLost(f *Facts) (Reason, bool) {
	if f.Shared == nil || !f.Shared.Lost {
		return Reason{}, false
	}
	return Reason{Code: BudgetAway, Text: "Not admitting: the budget of the origin " + f.Snapshot.Policy.Origin + " cannot be reached in the store"}, true
}

func budget(f *Facts) (Reason, bool) {
	if f.Shared == nil || f.Expected >= f.Snapshot.Policy.Rate {
		return Reason{}, false
	}
	return Reason{Code: Budget, Admitting: true, Text: fmt.Sprintf("Admitting %s: the origin's budget of %s is shared by %s",
		perSecond(f.rate()), perSecond(f.Shared.Rate), count(max(1, f.Shared.Rooms), "room with a queue", "rooms with a queue"))}, true
}

// byHealth holds if the controller of an adaptive room has found the rate in force.
func byHealth(f *Facts) (Reason, bool) {
	h, p := f.Health, &f.Snapshot.Policy
	if h == nil || slices.Contains(f.Snapshot.Live, "rate") || !p.Adapts() || f.Shared != nil && f.Expected < p.Rate {
		return Reason{}, false
	}
	r := Reason{Code: Adaptive, Admitting: true}
	switch begin := "Admitting " + perSecond(f.rate()) + ": "; {
	case h.Level == adaptive.Unhealthy:
		r.Code, r.Text = OriginUnhealthy, begin+"the origin is unhealthy, "+f.measured()
		if p.Rate <= p.MinRate {
			r.Text += "; the rate is at min_rate"
		}
	case h.Level == adaptive.Strained:
		r.Text = begin + "the adaptive rate holds because " + f.measured()
	case p.Rate >= p.MaxRate:
		r.Text = begin + "the adaptive rate is at max_rate" + f.byEvent()
	case h.Level == adaptive.Unknown:
		r.Text = begin + "the adaptive rate stays, because the origin had too few requests to measure"
	default:
		r.Text = begin + "the adaptive rate follows the origin, " + f.measured() + ", up to max_rate " + perSecond(p.MaxRate)
	}
	return r, true
}

// byRate is the cause where no other holds.
func byRate(f *Facts) Reason {
	p := &f.Snapshot.Policy
	live := slices.Contains(f.Snapshot.Live, "rate")
	r := Reason{Code: Rate, Admitting: true, Text: "Admitting " + perSecond(f.rate()) + ": limited by the rate"}
	switch e := f.Event; {
	case live:
		r.Who = f.change("rate").Who
		r.Text += f.by("rate")
	case e != nil && e.Rate > 0 && f.Now >= e.Starts:
		r.Code, r.Until, r.Text = Event, e.Ends, "Admitting "+perSecond(f.rate())+": limited by the rate of the event "+nameOf(e)+", which ends in "+span(e.Ends-f.Now)
	case f.Expected > 0 && f.Expected < p.Rate:
		r.Text = fmt.Sprintf("Admitting %s: burst and head_window do not allow the rate of %s", perSecond(f.Expected), perSecond(p.Rate))
	}
	return r
}

// rate returns the rate at which the room can admit.
func (f *Facts) rate() int64 {
	if f.Expected > 0 {
		return min(f.Expected, f.Snapshot.Policy.Rate)
	}
	return f.Snapshot.Policy.Rate
}

// measured returns what an adaptive room measures of its origin.
func (f *Facts) measured() string {
	a, h := &f.Snapshot.Policy.Adaptive, f.Health
	text := fmt.Sprintf("p95 %d ms of %d ms, errors %s of %s", h.P95.Milliseconds(), a.TargetP95.Milliseconds(), percent(h.ErrorRate()), percent(a.MaxErrorRate))
	if h.Scored {
		text += fmt.Sprintf(", score %.2f", h.Score)
	}
	return text
}

// change returns the newest change of a field that an operator has set; the zero value if none has.
func (f *Facts) change(field string) Change {
	if !slices.Contains(f.Snapshot.Live, field) {
		return Change{}
	}
	return f.Changes[field]
}

// by returns the operator who has set a field, and when.
func (f *Facts) by(field string) string {
	switch c := f.change(field); {
	case c.Who == "":
		return ""
	case c.At == 0:
		return ", set by " + c.Who
	default:
		return ", set by " + c.Who + " " + span(f.Now-c.At) + " ago"
	}
}

// byEvent returns the event to which the method is due.
func (f *Facts) byEvent() string {
	e := f.Event
	if e == nil || slices.Contains(f.Snapshot.Live, "method") || e.Method == "" && e.Rate == 0 {
		return ""
	}
	return ", by the event " + nameOf(e) + " until " + clock(e.Ends)
}

func nameOf(e *policy.Event) string {
	return cmp.Or(e.Name, "of "+time.UnixMicro(e.Starts).UTC().Format(time.DateTime))
}
