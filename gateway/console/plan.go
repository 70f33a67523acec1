package console

import (
	"time"

	"github.com/anteroom/anteroom/admission"
)

// eventView is a planned event.
type eventView struct {
	Name       string      `json:"name,omitempty"`
	StartsAt   stamp       `json:"starts_at"`
	EndsAt     stamp       `json:"ends_at"`
	PrequeueAt *stamp      `json:"prequeue_at,omitempty"`
	Rate       *thousandth `json:"rate,omitempty"`
	Method     string      `json:"method,omitempty"`
}

// lotteryView is the lottery in force.
type lotteryView struct {
	OpensAt    stamp  `json:"opens_at"`
	PrequeueAt *stamp `json:"prequeue_at,omitempty"`
	Gathered   int64  `json:"gathered"`
	Drawn      bool   `json:"drawn"`
}

// stamp is µs of Redis's clock, written as RFC 3339 in UTC with microseconds.
type stamp int64

// MarshalJSON writes the time as text.
func (s stamp) MarshalJSON() ([]byte, error) {
	return []byte(time.UnixMicro(int64(s)).UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}

func stampOf(µs int64) *stamp {
	if µs == 0 {
		return nil
	}
	return new(stamp(µs))
}

func viewEvent(e *admission.Event) *eventView {
	if e == nil {
		return nil
	}
	v := &eventView{Name: e.Name, StartsAt: stamp(e.Starts), EndsAt: stamp(e.Ends), PrequeueAt: stampOf(e.Gathers), Method: e.Method}
	if e.Rate > 0 {
		v.Rate = new(thousandth(e.Rate))
	}
	return v
}

func viewLottery(s *admission.Snapshot, p *admission.Policy) *lotteryView {
	if p.Method != admission.Lottery || p.OpensAt == 0 {
		return nil
	}
	return &lotteryView{OpensAt: stamp(p.OpensAt), PrequeueAt: stampOf(p.PrequeueAt), Gathered: s.Prequeued, Drawn: !s.Gathering()}
}

// mayDraw reports whether operators can make a room a lottery: it needs an opening and a secret.
func mayDraw(file *admission.Policy) bool { return file.Plan.Draw(file.OpensAt) != nil }
