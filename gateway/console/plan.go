package console

import (
	"net/http"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// eventView is a planned event.
type eventView struct {
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
	v := &eventView{Name: e.Name, StartsAt: timestamp(e.Starts), EndsAt: timestamp(e.Ends), PrequeueAt: optional(e.Gathers), Method: e.Method}
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

// plannedView is an event of a room.
type plannedView struct {
	Room   string `json:"room"`
	Origin string `json:"origin"`
	eventView
}

// calendar serves the planned events.
type calendar struct{ *Console }

// list responds with the planned events of the operator's rooms. Those of one room never overlap; those of rooms with the same origin may.
func (c calendar) list(w http.ResponseWriter, _ *http.Request, who *access.Person) error {
	answer := struct {
		Events []plannedView `json:"events"`
	}{Events: []plannedView{}}
	for _, room := range c.o.Rooms() {
		if !who.May(access.Viewer, room.Queue.ID()) {
			continue
		}
		for e := range room.File.Plan.All() {
			answer.Events = append(answer.Events, plannedView{room.Queue.ID(), room.Origin, *viewEvent(&e)})
		}
	}
	return ophttp.OK(w, answer)
}
