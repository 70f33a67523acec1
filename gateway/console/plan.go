package console

import "github.com/anteroom/anteroom/admission"

// eventView is a planned event.
type eventView struct {
	ID         string      `json:"id,omitempty"` // of a live event
	Name       string      `json:"name,omitempty"`
	StartsAt   timestamp   `json:"starts_at"`
	EndsAt     timestamp   `json:"ends_at"`
	PrequeueAt *timestamp  `json:"prequeue_at,omitempty"`
	Rate       *thousandth `json:"rate,omitempty"`
	Method     string      `json:"method,omitempty"`
}

// lotteryView is the lottery in force.
type lotteryView struct {
	OpensAt    timestamp  `json:"opens_at"`
	PrequeueAt *timestamp `json:"prequeue_at,omitempty"`
	Gathered   int64      `json:"gathered"`
	Drawn      bool       `json:"drawn"`
}

func viewEvent(e *admission.Event) *eventView {
	if e == nil {
		return nil
	}
	v := &eventView{ID: e.ID, Name: e.Name, StartsAt: timestamp(e.Starts), EndsAt: timestamp(e.Ends), PrequeueAt: optional(e.Gathers), Method: e.Method}
	if e.Rate > 0 {
		v.Rate = new(thousandth(e.Rate))
	}
	return v
}

func viewLottery(s *admission.Snapshot, p *admission.Policy) *lotteryView {
	if p.Method != admission.Lottery || p.OpensAt == 0 {
		return nil
	}
	return &lotteryView{OpensAt: timestamp(p.OpensAt), PrequeueAt: optional(p.PrequeueAt), Gathered: s.Prequeued, Drawn: !s.Gathering()}
}

// mayDraw reports whether operators can make a room a lottery: it needs an opening and a secret.
func mayDraw(file *admission.Policy) bool { return file.Plan.Draw(file.OpensAt) != nil }
