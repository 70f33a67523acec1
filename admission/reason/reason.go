// Package reason computes why a room admits, or does not. It is pure: the facts are parameters.
//
// Reading order: reason.go (the codes and their order), rules.go (one function a cause), words.go (figures as text).
package reason

import (
	"time"

	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/admission/policy"
	"github.com/anteroom/anteroom/admission/snapshot"
)

// Code names a cause. It is a label of a metric and a value of the API. The store keeps codes as their indexes in Codes.
type Code string

// The causes, in the order in which they are looked for.
const (
	StoreUnknown    Code = "store_unknown"    // this gateway has never reached the store
	StoreAway       Code = "store_away"       // the store does not reply
	Off             Code = "off"              // enabled: false
	Passthrough     Code = "passthrough"      // every visitor is proxied
	SoldOut         Code = "sold_out"         // closed because all is sold out
	Closed          Code = "closed"           // method reject
	Paused          Code = "paused"           // by an operator
	BeforeOpening   Code = "before_opening"   // the lottery has not opened
	Recovering      Code = "recovering"       // the pause after an outage of the store
	RateZero        Code = "rate_zero"        // rate is 0
	MaxActive       Code = "max_active"       // no free slot
	Draining        Code = "draining"         // nobody waits and nobody may join
	NobodyWaits     Code = "nobody_waits"     // visitors are admitted immediately
	MinWait         Code = "min_wait"         // the first visitor has not waited min_wait
	Absent          Code = "absent"           // the first visitors do not poll
	BudgetAway      Code = "budget_away"      // the origin's budget cannot be reached
	Budget          Code = "budget"           // the room's share of the origin's budget
	OriginUnhealthy Code = "origin_unhealthy" // an adaptive rate falls
	Adaptive        Code = "adaptive"         // an adaptive rate is held, rises, or is at max_rate
	Event           Code = "event"            // the rate of an event
	Rate            Code = "rate"             // the rate of the room
)

// Codes are all causes. The store keeps indexes of this list: new codes go to its end.
var Codes = []Code{
	StoreUnknown, StoreAway, Off, Passthrough, SoldOut, Closed, Paused, BeforeOpening, Recovering, RateZero, MaxActive, Draining,
	NobodyWaits, MinWait, Absent, BudgetAway, Budget, OriginUnhealthy, Adaptive, Event, Rate,
}

// Index returns the index of a code in Codes, -1 for a code that is not in it.
func Index(c Code) int {
	for i := range Codes {
		if Codes[i] == c {
			return i
		}
	}
	return -1
}

// Facts are what a reason is computed from. Times are µs of Redis's clock, rates thousandths of a visitor per second.
type Facts struct {
	Now      int64
	Snapshot *snapshot.Snapshot

	Away     bool  // the store does not reply
	Expected int64 // the rate on which the room can count

	Shared  *Shared       // nil: the room has no budget
	Health  *Health       // nil: the room is not adaptive
	Event   *policy.Event // in force; may be nil
	Next    int64         // when a closed room opens by itself; 0: not planned
	Changes Changes       // the newest changes by operators
	NextEnd time.Duration // until the first of the sessions ends if its visitor stays away; 0: not known
	SoldOut bool          // the room is closed because all is sold out
}

// Shared is the budget that the room shares with other rooms of its origin.
type Shared struct {
	Rate  int64
	Rooms int64 // with a queue
	Lost  bool  // the budget cannot be reached
}

// Health is the health of the origin of an adaptive room.
type Health struct {
	adaptive.Health
	Level adaptive.Level
}

// Change is the newest change by an operator of a field. The zero value: not known.
type Change struct {
	Who string
	At  int64
}

// Changes are the newest changes by the names of the fields, as in Snapshot.Live.
type Changes map[string]Change

// Reason is why a room admits, or does not.
type Reason struct {
	Code      Code
	Admitting bool   // a present visitor can be admitted now
	Text      string // one line
	Since     int64  // µs of Redis's clock; 0: not known
	Until     int64  // when the cause ends by itself; 0: not known
	Who       string // the operator whose change is the cause; empty: none
}

// Of returns the first cause that holds.
func Of(f *Facts) Reason {
	r := first(f)
	if f.Snapshot.Policy.Draining && r.Code != Draining && r.Code != Closed && r.Code != SoldOut {
		r.Text += "; draining: nobody joins"
	}
	return r
}

func first(f *Facts) Reason {
	for _, rule := range rules {
		if r, holds := rule(f); holds {
			return r
		}
	}
	return byRate(f)
}
