package admission_test

import (
	"testing"
	"time"
)

// A session that lasts longer than the memory of ended tickets keeps the time of its admission.
func TestHeartbeat_KeepsTimeOfAdmission(t *testing.T) {
	t.Parallel()
	p := faultPolicy
	s := newStage(t)
	g := s.gateway(p)
	g.tick()
	st, _ := g.arrives()
	if st.AdmittedAt == 0 {
		t.Fatalf("%+v", st)
	}
	for range 40 { // minutes; a ticket that ended is remembered for 25
		g.room.Touch(st.Ticket.ID, false)
		s.lives(time.Minute, g)
	}
	f, err := g.room.Lookup(g.ctx(), st.Ticket.ID)
	if err != nil || f.AdmittedAt != st.AdmittedAt {
		t.Errorf("admitted at %d, after 40 minutes %+v %v", st.AdmittedAt, f, err)
	}
}
