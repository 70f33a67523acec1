// Package policy describes how a room admits: its limits, the events and lotteries planned for it, and the times that
// follow from its settings. It is pure: the current time is a parameter, and nothing here calls the store.
//
// Reading order: policy.go, plan.go (events), draw.go (lotteries), hold.go (how long a poll counts as presence), schedule.go (the form
// that the scripts take).
package policy

import (
	"context"
	"time"
)

// Methods of a room's queue.
const (
	FIFO        = "fifo"
	Lottery     = "lottery"     // drawn at OpensAt from the visitors of the pre-queue
	Passthrough = "passthrough" // every visitor is proxied; the room only measures
	Reject      = "reject"      // closed
)

// Values of Policy.OnStoreError: the treatment of new visitors while the store is away.
const (
	OnErrorWait   = "wait"
	OnErrorOpen   = "open"
	OnErrorClosed = "closed"
	OnErrorLocal  = "local"
)

// Strategy names how a room's limiter counts; lua/lib/limiter.lua has one of each name.
type Strategy string

// The strategies. In any interval dt a token bucket grants at most rate·dt + burst, and a fixed window at most rate in each
// aligned second, so up to twice that in a second that is not aligned. A leaky bucket grants one token at a time, and a burst
// only of what came due between two ticks. An adaptive room has a token bucket whose rate follows the origin's health.
const (
	StrategyTokenBucket Strategy = "token_bucket"
	StrategyFixedWindow Strategy = "fixed_window"
	StrategyLeakyBucket Strategy = "leaky_bucket"
	StrategyAdaptive    Strategy = "adaptive"
)

// MostJoins is the largest Joins and Wide that the store counts to.
const MostJoins = 100_000

// Policy is how a room admits. The configuration sets it; the policy of a snapshot has the live changes of operators over it.
type Policy struct {
	Enabled      bool
	Method       string        // fifo, lottery, passthrough, reject
	Strategy     Strategy      // "": token_bucket
	Rate         int64         // thousandths of a visitor per second; in a snapshot the rate in force
	Burst        int64         // thousandths of a visitor
	MaxActive    int64         // limit of admitted and active tickets together; 0: none
	HeadWindow   int64         // most admissions of one tick; 0: no limit
	Capacity     int64         // limit of the queue's length; 0: none
	MinWait      time.Duration // shortest wait
	MinRate      int64         // of an adaptive strategy, thousandths
	MaxRate      int64
	Origin       string // id of the room's origin
	Adaptive     Adaptive
	PrequeueAt   int64 // of a lottery, µs of Redis's clock: when its pre-queue opens; 0: it is always open
	OpensAt      int64 // of a lottery, µs of Redis's clock: when it is drawn; 0: there is none
	PollBudget   int64 // polls per second that all waiting visitors together are advised to make; 0: unlimited
	Plan         *Plan // events and draws; nil: none
	Budgeted     bool  // admissions need a lease of the origin's budget
	Budget       Budget
	Joins        int64 // places per address (/64 for IPv6) in JoinsPer, at most MostJoins; 0: no limit
	JoinsPer     time.Duration
	Wide         int64 // places per network (/24, /48) in WidePer; with Joins only
	WidePer      time.Duration
	Absence      time.Duration // how long the place of a silent visitor is kept
	ClaimWindow  time.Duration // longest time from admission to claim
	SessionTTL   time.Duration // life of a pass; with PassLife, how long a session may be silent
	PassLife     time.Duration // life of a pass that is signed once, while the gateways keep its session alive; 0: SessionTTL
	Message      string        // operator's text for visitors
	Challenge    string        // level of the challenge before a place; the gateway knows the levels
	Paused       bool          // no admissions; joins go on
	Draining     bool          // no new tickets
	OnStoreError string        // wait, open, closed, local

	SoldOutCloses bool // the room closes where every item of its facts is sold out
	SoldOut       bool // in a snapshot: it is closed for that reason
}

// Adaptive is the health that an adaptive strategy keeps the origin in.
type Adaptive struct {
	Mode         string // adaptive.ModeGradient, adaptive.ModeStep
	TargetP95    time.Duration
	MaxErrorRate float64
	Shadow       bool   // find and report the rate, but admit at Rate
	Scorer       Scorer // nil: none
}

// Scorer is a second source of the origin's health.
type Scorer interface {
	// Score returns the health from 0 (unhealthy) to 1 (healthy). One gateway of the room calls it every few seconds.
	Score(ctx context.Context) (float64, error)
}

// Budget limits the admissions of all rooms of an origin together: a token bucket in the store, of which the rooms get leases
// by weight (lua/origin_lease.lua). In any interval dt all rooms together admit at most Rate·dt + Burst.
type Budget struct {
	Origin      string // its id
	Rate, Burst int64  // thousandths of a visitor per second, and of a visitor
	Weight      int64  // of this room, thousandths
	Weights     int64  // of all rooms of the origin in the configuration; used while the store is away
}

// share returns this room's share of an amount of the budget, by weights alone.
func (b *Budget) share(of int64) int64 {
	return int64(float64(of) * float64(b.Weight) / float64(max(b.Weights, b.Weight, 1)))
}

// LocalRate returns the room's rate while the store is away and no lease can be had.
func (p *Policy) LocalRate() int64 {
	if p.Budgeted {
		return min(p.Rate, p.Budget.share(p.Budget.Rate))
	}
	return p.Rate
}

// LocalBurst returns the room's burst while the store is away and no lease can be had.
func (p *Policy) LocalBurst() int64 {
	if p.Budgeted {
		return min(p.Burst, p.Budget.share(p.Budget.Burst))
	}
	return p.Burst
}

// Open reports whether visitors need neither a place nor a pass.
func (p *Policy) Open() bool { return !p.Enabled || p.Method == Passthrough }

// Closed reports whether the room admits nobody and takes no joins: by its method, or because everything is sold out.
func (p *Policy) Closed() bool { return p.Method == Reject || p.SoldOut }

// Adapts reports whether the rate in force is the one that the controller found.
func (p *Policy) Adapts() bool { return p.Strategy == StrategyAdaptive && !p.Adaptive.Shadow }

// limiter returns the strategy of the room's limiter: a shadow strategy admits like a token bucket.
func (p *Policy) limiter() Strategy {
	if p.Strategy == StrategyAdaptive && p.Adaptive.Shadow {
		return StrategyTokenBucket
	}
	return p.Strategy
}
