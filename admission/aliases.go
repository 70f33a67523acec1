package admission

import (
	"github.com/anteroom/anteroom/admission/alarm"
	"github.com/anteroom/anteroom/admission/policy"
	"github.com/anteroom/anteroom/admission/snapshot"
)

// The types of packages alarm, policy and snapshot that the methods of Room take and return.
type (
	Policy   = policy.Policy
	Adaptive = policy.Adaptive
	Budget   = policy.Budget
	Strategy = policy.Strategy
	Plan     = policy.Plan
	Event    = policy.Event
	Draw     = policy.Draw

	Alarm     = alarm.Spec
	AlarmWhen = alarm.When
	AlarmDo   = alarm.Do

	Snapshot   = snapshot.Snapshot
	Evacuation = snapshot.Evacuation
	Facts      = snapshot.Facts
	Flow       = snapshot.Flow
	AgeCount   = snapshot.AgeCount
)

// Methods, strategies and outage behaviours of a Policy.
const (
	FIFO        = policy.FIFO
	Lottery     = policy.Lottery
	Passthrough = policy.Passthrough
	Reject      = policy.Reject

	StrategyTokenBucket = policy.StrategyTokenBucket
	StrategyFixedWindow = policy.StrategyFixedWindow
	StrategyLeakyBucket = policy.StrategyLeakyBucket
	StrategyAdaptive    = policy.StrategyAdaptive

	OnErrorWait   = policy.OnErrorWait
	OnErrorOpen   = policy.OnErrorOpen
	OnErrorClosed = policy.OnErrorClosed
	OnErrorLocal  = policy.OnErrorLocal

	SoldOutClose  = snapshot.SoldOutClose
	LiveChallenge = snapshot.Challenge

	MostJoins = policy.MostJoins
	HoldSlack = policy.HoldSlack
)

// NewPlan is policy.NewPlan.
func NewPlan(secret []byte, room string, p *Policy, events []Event) *Plan {
	return policy.NewPlan(secret, room, p, events)
}
