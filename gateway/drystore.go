package gateway

import (
	"context"
	"errors"
	"log/slog"

	"github.com/anteroom/anteroom/admission"
)

var discarded = slog.New(slog.DiscardHandler)

// dryStore predicts from the snapshot and from lookups what the store would reply, and changes nothing.
type dryStore struct{ queue *admission.Room }

// admits reports whether a newcomer is admitted without waiting, if the limiter has capacity.
func (r dryStore) admits() bool {
	s := r.queue.Snapshot()
	if !s.Known || !r.queue.Reachable() {
		return s.Policy.OnStoreError == admission.OnErrorOpen && s.Admits()
	}
	return s.AdmitsNow() && (s.Policy.MaxActive == 0 || s.Admitted+s.Active < s.Policy.MaxActive)
}

func (r dryStore) Join(ctx context.Context, a admission.Arrival) (admission.Standing, admission.Refusal, error) {
	if a.Keyed || a.Account || a.Held {
		if s, err := r.Check(ctx, admission.Ticket{ID: a.ID}); err == nil && s.State != admission.Expired {
			return s, admission.Granted, nil
		}
		if a.Held {
			return admission.Standing{State: admission.Ended}, admission.Granted, nil
		}
	}
	if why := r.queue.Refuses(); why != admission.Granted {
		return admission.Standing{}, why, nil
	}
	s := r.queue.Snapshot()
	if (!s.Known || !r.queue.Reachable()) && s.Policy.OnStoreError == admission.OnErrorClosed {
		return admission.Standing{}, admission.Unavailable, nil
	}
	t := admission.Ticket{ID: a.ID, Order: r.queue.Now(), Epoch: s.Epoch, Fence: s.Fence}
	if r.admits() {
		return admission.Standing{State: admission.Active, Ticket: t, AdmittedAt: r.queue.RedisNow(), First: true, New: true}, admission.Granted, nil
	}
	return admission.Standing{State: admission.Waiting, Ticket: t, New: true}, admission.Granted, nil
}

func (r dryStore) Check(ctx context.Context, t admission.Ticket) (admission.Standing, error) {
	f, err := r.queue.Lookup(ctx, t.ID)
	switch {
	case errors.Is(err, admission.ErrUnknown) && t.Order == 0:
		return admission.Standing{}, err
	case errors.Is(err, admission.ErrUnknown), errors.Is(err, admission.ErrStore):
		return admission.Standing{State: admission.Waiting, Ticket: t}, nil // signed and not enrolled yet
	case err != nil:
		return admission.Standing{}, err
	}
	return admission.Standing{State: f.State, Reason: f.Reason, Ticket: t, AdmittedAt: f.AdmittedAt}, nil
}

func (r dryStore) Claim(ctx context.Context, t admission.Ticket) (admission.Standing, error) {
	s, err := r.Check(ctx, t)
	if err == nil && s.State == admission.Admitted {
		s.State = admission.Active
	}
	return s, err
}

func (dryStore) Leave(context.Context, admission.Ticket) error { return nil }

func (dryStore) Touch(admission.ID, bool) {}

func (dryStore) Revoke(admission.ID) {}

func (r dryStore) Revoked(sid admission.ID) bool { return r.queue.Revoked(sid) }

func (r dryStore) Alive(ctx context.Context, sid admission.ID) (alive, sure bool) {
	f, err := r.queue.Lookup(ctx, sid)
	if err != nil {
		return true, false
	}
	return f.State == admission.Active, true
}

func (r dryStore) Charge(context.Context) bool { return r.admits() }
