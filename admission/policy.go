package admission

import (
	"context"
	"time"

	"github.com/anteroom/anteroom/admission/adaptive"
)

// Methods of a room's queue.
const (
	FIFO        = "fifo"
	Lottery     = "lottery"     // drawn at OpensAt from those who gathered before
	Passthrough = "passthrough" // everybody goes through; the room only measures
	Reject      = "reject"      // closed
)

// What new visitors get while the store is away (DESIGN §6).
const (
	OnErrorWait   = "wait"
	OnErrorOpen   = "open"
	OnErrorClosed = "closed"
	OnErrorLocal  = "local"
)

// Policy is how a room admits. Room.SetPolicy takes it from the configuration;
// Snapshot.Policy is that with the live changes of operators over it.
type Policy struct {
	Enabled      bool
	Method       string        // fifo, lottery, passthrough, reject
	Strategy     Strategy      // "": token_bucket
	Rate         int64         // thousandths of a visitor per second; in a snapshot the rate in force
	Burst        int64         // thousandths of a visitor
	MaxActive    int64         // admitted + active; 0: no limit
	HeadWindow   int64         // only the first n of the line; 0: no limit
	Capacity     int64         // longest line; 0: no limit
	MinWait      time.Duration // a floor on waiting
	MinRate      int64         // of an adaptive strategy, thousandths
	MaxRate      int64
	Origin       string // id of the one behind the room
	Adaptive     Adaptive
	PrequeueAt   int64 // of a lottery, µs of Redis's clock: from when people gather; 0: always
	OpensAt      int64 // and when it is drawn; 0: there is none
	PollBudget   int64 // polls a second that all who wait are told to make at most; 0: any number
	Plan         *Plan // events and draws; nil: none
	Budgeted     bool  // admissions need a lease of the origin's budget
	Budget       Budget
	Joins        int64 // places of one address (/64 for IPv6) in JoinsPer, at most MostJoins; 0: no limit
	JoinsPer     time.Duration
	Wide         int64 // places of the network around it (/24, /48) in WidePer; with Joins only
	WidePer      time.Duration
	Absence      time.Duration // how long a place is kept unheard of
	ClaimWindow  time.Duration // admitted to claimed at most
	SessionTTL   time.Duration // life of a pass
	Message      string        // operator's words to visitors
	Paused       bool          // nobody is admitted, joins go on
	Draining     bool          // no new tickets
	OnStoreError string        // wait, open, closed, local
}

// Adaptive is what an adaptive strategy holds the origin to.
type Adaptive struct {
	Mode         string // adaptive.ModeGradient, adaptive.ModeStep
	TargetP95    time.Duration
	MaxErrorRate float64
	Shadow       bool   // find the rate and tell it, but admit at Rate
	Scorer       Scorer // nil: none
}

// Scorer is a second opinion of the origin's health.
type Scorer interface {
	// Score is 1 for healthy, 0 for unhealthy. It is asked by one gateway of the room at a time, every few seconds.
	Score(ctx context.Context) (float64, error)
}

// Open says whether the room holds nobody up: neither a place nor a pass is needed.
func (p *Policy) Open() bool { return !p.Enabled || p.Method == Passthrough }

// Adapts says whether the rate in force is the one that was found.
func (p *Policy) Adapts() bool { return p.Strategy == StrategyAdaptive && !p.Adaptive.Shadow }

// strategy is the limiter's: one in the shadow acts as a token bucket.
func (p *Policy) strategy() Strategy {
	if p.Strategy == StrategyAdaptive && p.Adaptive.Shadow {
		return StrategyTokenBucket
	}
	return p.Strategy
}

// control is the controller's.
func (p *Policy) control() adaptive.Policy {
	a := p.Adaptive
	return adaptive.Policy{Mode: a.Mode, MinRate: p.MinRate, MaxRate: p.MaxRate, TargetP95: a.TargetP95, MaxErrorRate: a.MaxErrorRate}
}

// MostJoins is the largest Joins and Wide that the store counts to.
const MostJoins = 100_000

// Live is a change by an operator. nil leaves a field as it is; a name in
// Clear returns it to the configuration.
type Live struct {
	Rate, Burst, MaxActive *int64
	Paused                 *bool
	Draining               *bool
	Message, Method        *string
	SessionTTL             *time.Duration
	Enabled                *bool
	Clear                  []string // names as in the API: rate burst max_active paused draining message method session.ttl enabled
}
