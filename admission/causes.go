package admission

import (
	"context"
	"errors"
	"time"

	"github.com/anteroom/anteroom/admission/reason"
)

// causes are what the reason of a room needs beside its snapshot.
type causes struct {
	code    reason.Code // that since belongs to
	since   int64       // µs of Redis's clock
	end     time.Duration
	endAt   int64 // mono at which end was read
	noticed bool
	version int64 // Snapshot.Version up to which changes is complete
	epoch   string
	changes reason.Changes
}

// record keeps what series_record replied.
func (k *causes) record(code reason.Code, since int64, end time.Duration, mono int64) {
	if since > 0 {
		k.code, k.since = code, since
	}
	k.end, k.endAt = end, mono
}

// noticedEntries is how many entries of the audit log are searched for the newest change of each field.
const noticedEntries = 200

// Notice reads who has changed a room, if its live changes are newer than what was read before. Run calls it; tests may.
func (r *Recorder) Notice(ctx context.Context) error {
	var errs []error
	for _, room := range r.c.all() {
		s := room.Snapshot()
		r.mu.Lock()
		k := &r.at(room.id).causes
		due := s.Known && (!k.noticed || k.version != s.Version || k.epoch != s.Epoch)
		r.mu.Unlock()
		if !due || room.store.away.Load() {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, r.c.tickTimeout())
		list, err := room.auditLog(ctx, noticedEntries)
		cancel()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		changes := reason.Changes{}
		for _, e := range list {
			for _, c := range e.Changes {
				if _, newer := changes[c.Field]; !newer && c.After != nil {
					changes[c.Field] = reason.Change{Who: e.Who, At: e.At * 1e6}
				}
			}
		}
		r.mu.Lock()
		k.noticed, k.version, k.epoch, k.changes = true, s.Version, s.Epoch, changes
		r.mu.Unlock()
	}
	return errors.Join(errs...)
}

// tooOld is the age of a snapshot at which the store counts as away. The snapshot of an idle room is younger than keepTime and two
// pauses between reads unless reads fail, and reads that fail for store.timeout mark the store as away earlier.
const tooOld = 10 * time.Second

// Reason returns why a room admits, or does not.
func (r *Recorder) Reason(room *Room) reason.Reason {
	s, now := room.Snapshot(), room.RedisNow()
	file := room.view.schedule.Load().Policy
	r.mu.Lock()
	k := r.at(room.id).causes
	r.mu.Unlock()
	f := reason.Facts{Now: now, Snapshot: s, Away: room.store.away.Load() || s.Known && room.Age() >= tooOld, Expected: room.Expected(), Changes: k.changes, SoldOut: s.Policy.SoldOut}
	if k.end > 0 {
		f.NextEnd = max(0, k.end-time.Duration(r.c.mono()-k.endAt))
	}
	f.Event, _ = file.Plan.Events(now)
	if s.Policy.Method == Reject {
		f.Next, _ = file.NextOpening(now)
	}
	if s.Policy.Budgeted {
		use, _ := r.c.BudgetUse(s.Policy.Budget.Origin)
		f.Shared = &reason.Shared{Rate: s.Policy.Budget.Rate, Rooms: use.Queues, Lost: room.lease.unreached.Load()}
	}
	if at := room.Steering(); at != nil {
		f.Health = &reason.Health{Health: at.Origin.Health, Level: at.Level}
	}
	why := reason.Of(&f)
	if why.Since == 0 && why.Code == k.code {
		why.Since = k.since
	}
	return why
}

// Rates returns how fast a room has moved lately.
func (r *Recorder) Rates(room *Room) Rates {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at(room.ID()).pace.rates(room.Snapshot())
}
