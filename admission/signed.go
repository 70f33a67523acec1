package admission

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/admission/policy"
)

// signedMost bounds how many places given without the store are remembered: a
// front of the largest size. Who is farther back polls before the line gets there.
const signedMost = 20000

// signed are the places that this gateway gave while the store did not answer
// and the line was short. It enrols them when the store is back: left to their
// first polls they would come behind those who join meanwhile.
type signed struct {
	mu    sync.Mutex
	given []enterQ
}

func (s *signed) add(t Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.given) < signedMost {
		s.given = append(s.given, enterQ{kind: "signed", id: t.ID, client: t.Client, hold: policy.JoinHold(t.Interval), t: t})
	}
}

// enrolSigned enrols what was signed. A place that its own poll has enrolled
// already is found, and one that was used up meanwhile stays so.
func (r *Room) enrolSigned(ctx context.Context) error {
	for {
		r.signed.mu.Lock()
		qs := r.signed.given[:min(batchMost, len(r.signed.given))]
		r.signed.mu.Unlock()
		if len(qs) == 0 {
			return nil
		}
		if _, _, err := r.do(ctx, r.c.tickTimeout(), "room_enter", enterArgs(qs)...); redis.IsOOMError(err) {
			return nil // later: a full store takes nobody new, and admits those it has
		} else if err != nil {
			return err
		}
		r.signed.mu.Lock()
		r.signed.given = r.signed.given[len(qs):]
		if len(r.signed.given) == 0 {
			r.signed.given = nil
		}
		r.signed.mu.Unlock()
	}
}
