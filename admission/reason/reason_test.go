package reason_test

import (
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/admission/policy"
	"github.com/anteroom/anteroom/admission/reason"
	"github.com/anteroom/anteroom/admission/snapshot"
)

const (
	now    = int64(1_795_000_000_000_000) // 2026-11-18 11:06:40 UTC
	second = int64(1_000_000)
)

// busy returns the facts of a room with a queue, admitted from at 5/s.
func busy() *reason.Facts {
	return &reason.Facts{
		Now: now, Expected: 5000,
		Snapshot: &snapshot.Snapshot{
			Known: true, RedisTime: now, Time: now, RoomTime: now, Waiting: 12, Oldest: now - 60*second, Active: 40, Holds: []int64{0, 20},
			Policy: policy.Policy{Enabled: true, Method: policy.FIFO, Rate: 5000, Burst: 5000, Origin: "shop", OnStoreError: policy.OnErrorWait},
		},
	}
}

// adapting makes the room adaptive, with an origin at a level.
func adapting(f *reason.Facts, level adaptive.Level, p95 time.Duration, errors int64) {
	p := &f.Snapshot.Policy
	p.Strategy, p.MinRate, p.MaxRate = policy.StrategyAdaptive, 1000, 50_000
	p.Adaptive = policy.Adaptive{TargetP95: 300 * time.Millisecond, MaxErrorRate: 0.05}
	f.Health = &reason.Health{Level: level, Health: adaptive.Health{Requests: 1000, Errors: errors, P95: p95}}
}

// byAlice notes that alice has set a field 3 min ago.
func byAlice(f *reason.Facts, field string) {
	f.Snapshot.Live = append(f.Snapshot.Live, field)
	f.Changes = reason.Changes{field: {Who: "alice", At: now - 180*second}, "message": {Who: "bob", At: now}}
}

func TestOf_NamesTheCause(t *testing.T) {
	covered := map[reason.Code]bool{}
	for _, row := range []struct {
		name   string
		change func(*reason.Facts)
		code   reason.Code
		admits bool
		text   string
		until  int64 // from now, s
		who    string
	}{
		{"rate", func(*reason.Facts) {}, reason.Rate, true, "Admitting 5.0/s: limited by the rate", 0, ""},
		{"rate of an operator", func(f *reason.Facts) { byAlice(f, "rate") }, reason.Rate, true,
			"Admitting 5.0/s: limited by the rate, set by alice 3 min ago", 0, "alice"},
		{"small rate", func(f *reason.Facts) { f.Snapshot.Policy.Rate, f.Expected = 25, 25 }, reason.Rate, true, "Admitting 0.025/s: limited by the rate", 0, ""},
		{"a rate that was returned to the file", func(f *reason.Facts) { byAlice(f, "rate"); f.Snapshot.Live = nil }, reason.Rate, true, "Admitting 5.0/s: limited by the rate", 0, ""},
		{"closed by an operator", func(f *reason.Facts) { f.Snapshot.Policy.Method = policy.Reject; byAlice(f, "method") }, reason.Closed, false,
			"Not admitting: the room is closed (method reject), set by alice 3 min ago", 0, "alice"},
		{"head_window", func(f *reason.Facts) { f.Snapshot.Policy.Rate, f.Expected = 90_000, 40_000 }, reason.Rate, true,
			"Admitting 40.0/s: burst and head_window do not allow the rate of 90.0/s", 0, ""},
		{"draining with a queue", func(f *reason.Facts) { f.Snapshot.Policy.Draining = true }, reason.Rate, true,
			"Admitting 5.0/s: limited by the rate; draining: nobody joins", 0, ""},
		{"store never reached", func(f *reason.Facts) { f.Snapshot.Known = false }, reason.StoreUnknown, false,
			"Not admitting from the queue: this gateway has not reached the store since its start; passes work, new visitors wait (on_store_error: wait)", 0, ""},
		{"store away", func(f *reason.Facts) { f.Away = true }, reason.StoreAway, false,
			"Not admitting from the queue: the store does not reply; passes work, places are kept, new visitors wait (on_store_error: wait)", 0, ""},
		{"store away, open", func(f *reason.Facts) { f.Away, f.Snapshot.Policy.OnStoreError = true, policy.OnErrorOpen }, reason.StoreAway, false,
			"Not admitting from the queue: the store does not reply; passes work, places are kept, every new visitor passes (on_store_error: open)", 0, ""},
		{"store away, closed", func(f *reason.Facts) { f.Away, f.Snapshot.Policy.OnStoreError = true, policy.OnErrorClosed }, reason.StoreAway, false,
			"Not admitting from the queue: the store does not reply; passes work, places are kept, new visitors are refused (on_store_error: closed)", 0, ""},
		{"store away, local", func(f *reason.Facts) { f.Away, f.Snapshot.Policy.OnStoreError = true, policy.OnErrorLocal }, reason.StoreAway, false,
			"Not admitting from the queue: the store does not reply; passes work, places are kept, each gateway admits by its own part of the rate (on_store_error: local)", 0, ""},
		{"switched off", func(f *reason.Facts) { f.Snapshot.Policy.Enabled = false; byAlice(f, "enabled") }, reason.Off, true,
			"Every visitor passes: the room is switched off (enabled: false), set by alice 3 min ago", 0, "alice"},
		{"passthrough", func(f *reason.Facts) { f.Snapshot.Policy.Method = policy.Passthrough }, reason.Passthrough, true, "Every visitor passes: method passthrough", 0, ""},
		{"closed", func(f *reason.Facts) { f.Snapshot.Policy.Method = policy.Reject }, reason.Closed, false, "Not admitting: the room is closed (method reject)", 0, ""},
		{"closed by an event", func(f *reason.Facts) {
			f.Snapshot.Policy.Method, f.Next = policy.Reject, now+90*second
			f.Event = &policy.Event{Name: "night", Starts: now - second, Ends: now + 90*second, Method: policy.Reject}
		}, reason.Closed, false, "Not admitting: the room is closed (method reject), by the event night until 11:08:10 UTC; it opens in 90 s", 90, ""},
		{"sold out", func(f *reason.Facts) { f.Snapshot.Policy.Method, f.SoldOut = policy.Reject, true }, reason.SoldOut, false,
			"Not admitting: all is sold out and the room is closed", 0, ""},
		{"paused", func(f *reason.Facts) { f.Snapshot.Policy.Paused = true; byAlice(f, "paused") }, reason.Paused, false, "Paused by alice 3 min ago: 12 visitors wait", 0, "alice"},
		{"paused, nobody known", func(f *reason.Facts) { f.Snapshot.Policy.Paused, f.Snapshot.Waiting = true, 1 }, reason.Paused, false, "Paused: 1 visitor waits", 0, ""},
		{"before the opening", func(f *reason.Facts) {
			p := &f.Snapshot.Policy
			p.Method, p.OpensAt, f.Snapshot.Prequeued = policy.Lottery, now+200*second, 512
		}, reason.BeforeOpening, false, "Not admitting: the lottery opens at 11:10:00 UTC, in 3 min; 512 visitors have gathered", 200, ""},
		{"before the pre-queue", func(f *reason.Facts) {
			p := &f.Snapshot.Policy
			p.Method, p.OpensAt, p.PrequeueAt = policy.Lottery, now+200*second, now+100*second
		}, reason.BeforeOpening, false, "Not admitting: the lottery opens at 11:10:00 UTC, in 3 min; the pre-queue opens in 100 s", 200, ""},
		{"after an outage", func(f *reason.Facts) { f.Snapshot.Hold = now + 4*second }, reason.Recovering, false,
			"Not admitting for 4 s: the store is back after an outage, and visitors report again first", 4, ""},
		{"rate 0", func(f *reason.Facts) { f.Snapshot.Policy.Rate = 0; byAlice(f, "rate") }, reason.RateZero, false, "Not admitting: the rate is 0, set by alice 3 min ago", 0, "alice"},
		{"max_active", func(f *reason.Facts) {
			f.Snapshot.Policy.MaxActive, f.Snapshot.Active, f.Snapshot.Admitted, f.NextEnd = 2000, 1990, 10, 41*time.Second
		}, reason.MaxActive, false, "Not admitting: max_active 2,000 of 2,000 reached, of which 10 not claimed yet; the next session ends in about 41 s", 41, ""},
		{"max_active, nobody waits", func(f *reason.Facts) { f.Snapshot.Policy.MaxActive, f.Snapshot.Waiting = 40, 0 }, reason.MaxActive, false,
			"Not admitting: max_active 40 of 40 reached", 0, ""},
		{"max_active not reached", func(f *reason.Facts) { f.Snapshot.Policy.MaxActive = 41 }, reason.Rate, true, "Admitting 5.0/s: limited by the rate", 0, ""},
		{"nobody waits", func(f *reason.Facts) { f.Snapshot.Waiting, f.Snapshot.Parked = 0, 3 }, reason.NobodyWaits, true,
			"Nobody waits: up to 5.0/s are admitted immediately; 3 absent visitors keep their places", 0, ""},
		{"drained", func(f *reason.Facts) {
			f.Snapshot.Waiting, f.Snapshot.Policy.Draining = 0, true
			byAlice(f, "draining")
		}, reason.Draining, false,
			"Nobody waits and nobody joins: the room is draining, set by alice 3 min ago", 0, "alice"},
		{"min_wait", func(f *reason.Facts) { f.Snapshot.Policy.MinWait = 90 * time.Second }, reason.MinWait, false,
			"Not admitting: the first visitor has waited less than min_wait 1m30s, for 30 s more", 30, ""},
		{"absent", func(f *reason.Facts) { f.Snapshot.Holds = []int64{0, 0, 0} }, reason.Absent, false,
			"Not admitting: none of the first 3 visitors has polled lately; they are passed over and keep their places", 0, ""},
		{"budget shared", func(f *reason.Facts) { f.Expected, f.Shared = 2500, &reason.Shared{Rate: 10_000, Rooms: 3} }, reason.Budget, true,
			"Admitting 2.5/s: the origin's budget of 10.0/s is shared by 3 rooms with a queue", 0, ""},
		{"budget larger than the rate", func(f *reason.Facts) { f.Shared = &reason.Shared{Rate: 10_000, Rooms: 1} }, reason.Rate, true, "Admitting 5.0/s: limited by the rate", 0, ""},
		{"budget away", func(f *reason.Facts) { f.Shared = &reason.Shared{Rate: 10_000, Lost: true} }, reason.BudgetAway, false,
			"Not admitting: the budget of the origin shop cannot be reached in the store", 0, ""},
		{"origin unhealthy", func(f *reason.Facts) { adapting(f, adaptive.Unhealthy, 820*time.Millisecond, 70) }, reason.OriginUnhealthy, true,
			"Admitting 5.0/s: the origin is unhealthy, p95 820 ms of 300 ms, errors 7 % of 5 %", 0, ""},
		{"at min_rate", func(f *reason.Facts) {
			adapting(f, adaptive.Unhealthy, 820*time.Millisecond, 0)
			f.Snapshot.Policy.Rate, f.Expected = 1000, 1000
		}, reason.OriginUnhealthy, true, "Admitting 1.0/s: the origin is unhealthy, p95 820 ms of 300 ms, errors 0 % of 5 %; the rate is at min_rate", 0, ""},
		{"adaptive holds", func(f *reason.Facts) { adapting(f, adaptive.Strained, 310*time.Millisecond, 2) }, reason.Adaptive, true,
			"Admitting 5.0/s: the adaptive rate holds because p95 310 ms of 300 ms, errors 0.2 % of 5 %", 0, ""},
		{"adaptive rises", func(f *reason.Facts) { adapting(f, adaptive.Healthy, 110*time.Millisecond, 2) }, reason.Adaptive, true,
			"Admitting 5.0/s: the adaptive rate follows the origin, p95 110 ms of 300 ms, errors 0.2 % of 5 %, up to max_rate 50.0/s", 0, ""},
		{"adaptive at max_rate", func(f *reason.Facts) {
			adapting(f, adaptive.Healthy, 110*time.Millisecond, 2)
			f.Snapshot.Policy.Rate, f.Expected = 50_000, 50_000
		}, reason.Adaptive, true, "Admitting 50.0/s: the adaptive rate is at max_rate", 0, ""},
		{"adaptive, few requests", func(f *reason.Facts) { adapting(f, adaptive.Unknown, 0, 0) }, reason.Adaptive, true,
			"Admitting 5.0/s: the adaptive rate stays, because the origin had too few requests to measure", 0, ""},
		{"adaptive in the shadow", func(f *reason.Facts) {
			adapting(f, adaptive.Unhealthy, time.Second, 0)
			f.Snapshot.Policy.Adaptive.Shadow = true
		}, reason.Rate, true, "Admitting 5.0/s: limited by the rate", 0, ""},
		{"adaptive, rate of an operator", func(f *reason.Facts) {
			adapting(f, adaptive.Unhealthy, time.Second, 0)
			byAlice(f, "rate")
		}, reason.Rate, true, "Admitting 5.0/s: limited by the rate, set by alice 3 min ago", 0, "alice"},
		{"adaptive beyond the budget", func(f *reason.Facts) {
			adapting(f, adaptive.Healthy, 110*time.Millisecond, 0)
			f.Expected, f.Shared = 2500, &reason.Shared{Rate: 10_000, Rooms: 1}
		}, reason.Budget, true, "Admitting 2.5/s: the origin's budget of 10.0/s is shared by 1 room with a queue", 0, ""},
		{"event", func(f *reason.Facts) {
			f.Event = &policy.Event{Name: "drop", Starts: now - second, Ends: now + 3*3600*second, Rate: 5000}
		}, reason.Event, true, "Admitting 5.0/s: limited by the rate of the event drop, which ends in 3 h 0 min", 3 * 3600, ""},
		{"event, rate of an operator", func(f *reason.Facts) {
			f.Event = &policy.Event{Name: "drop", Starts: now - second, Ends: now + 3*3600*second, Rate: 5000}
			f.Snapshot.Live = []string{"rate"}
		}, reason.Rate, true, "Admitting 5.0/s: limited by the rate", 0, ""},
	} {
		f := busy()
		row.change(f)
		got := reason.Of(f)
		covered[got.Code] = true
		until := int64(0)
		if got.Until > 0 {
			until = (got.Until - now) / second
		}
		if got.Code != row.code || got.Admitting != row.admits || got.Text != row.text || until != row.until || got.Who != row.who {
			t.Errorf("%s: %s (%v, until %d, who %q) %q\nwant %s (%v, until %d, who %q) %q", row.name, got.Code, got.Admitting, until, got.Who, got.Text, row.code, row.admits, row.until, row.who, row.text)
		}
	}
	for _, code := range reason.Codes {
		if !covered[code] {
			t.Errorf("no row has the code %s", code)
		}
		if reason.Codes[reason.Index(code)] != code {
			t.Errorf("Index(%s) is %d", code, reason.Index(code))
		}
	}
	if reason.Index("sunny") != -1 {
		t.Error("an unknown code has an index")
	}
}
