package schedule

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

// records stores schedules.
type records interface {
	Time(ctx context.Context) (time.Time, error)
	WriteSchedule(ctx context.Context, r store.ScheduleRecord, next time.Time) (now store.ScheduleRecord, changed bool, err error)
	Schedule(ctx context.Context, id string) (store.ScheduleRecord, error)
	Schedules(ctx context.Context) ([]store.ScheduleRecord, error)
}

// owned reads the schedules of a tenant.
type owned interface {
	SchedulesOf(ctx context.Context, tenant string) (list []store.ScheduleRecord, indexed bool, err error)
	IndexSchedules(ctx context.Context, tenant func(store.ScheduleRecord) string) error
}

// Book reads and changes the schedules of a store.
type Book struct {
	store   records
	owned   owned
	indexed *atomic.Int64 // when the index of tenants was last completed, Unix s
}

// indexEvery is how often the index of tenants is compared with the schedules, which processes of an earlier version change alone.
const indexEvery = time.Minute

// NewBook returns the schedules of a store.
func NewBook(s interface {
	records
	owned
}) Book {
	return Book{s, s, new(atomic.Int64)}
}

// Create stores a new schedule, which Check has accepted, and returns it. If a schedule with its id exists, Create returns
// that one and created is false.
func (b Book) Create(ctx context.Context, s *Schedule) (stored *Schedule, created bool, err error) {
	now, err := b.store.Time(ctx)
	if err != nil {
		return nil, false, err
	}
	s.version, s.CreatedAt = 0, now
	if err := s.Plan(now); err != nil {
		return nil, false, err
	}
	r, err := s.record()
	if err != nil {
		return nil, false, err
	}
	r, changed, err := b.store.WriteSchedule(ctx, r, s.Next)
	if err != nil {
		return nil, false, err
	}
	stored, err = read(r)
	return stored, !changed, err
}

// Get returns a schedule.
func (b Book) Get(ctx context.Context, id string) (*Schedule, error) {
	r, err := b.store.Schedule(ctx, id)
	if err != nil {
		return nil, err
	}
	return read(r)
}

// List returns all schedules by id.
func (b Book) List(ctx context.Context) ([]*Schedule, error) {
	all, err := b.store.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	return readAll(all)
}

// ListOf returns the schedules of tenants by id. It reads no others, except to complete the index of tenants.
func (b Book) ListOf(ctx context.Context, tenants ...string) ([]*Schedule, error) {
	now := time.Now().Unix()
	if now-b.indexed.Load() >= int64(indexEvery/time.Second) {
		if err := b.owned.IndexSchedules(ctx, tenantOf); err != nil {
			return nil, err
		}
		b.indexed.Store(now)
	}
	var all []store.ScheduleRecord
	for _, tenant := range slices.Compact(slices.Sorted(slices.Values(tenants))) {
		list, indexed, err := b.owned.SchedulesOf(ctx, tenant)
		if err == nil && !indexed {
			if err = b.owned.IndexSchedules(ctx, tenantOf); err == nil {
				list, _, err = b.owned.SchedulesOf(ctx, tenant)
			}
		}
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	list, err := readAll(all)
	return slices.DeleteFunc(list, func(s *Schedule) bool { return !slices.Contains(tenants, s.Tenant) }), err
}

// tenantOf returns whose a schedule is; "" if it cannot be read.
func tenantOf(r store.ScheduleRecord) string {
	s, err := read(r)
	if err != nil {
		return ""
	}
	return s.Tenant
}

// readAll returns the schedules of records by id.
func readAll(all []store.ScheduleRecord) ([]*Schedule, error) {
	slices.SortFunc(all, func(a, b store.ScheduleRecord) int { return cmp.Compare(a.ID, b.ID) })
	list := make([]*Schedule, len(all))
	for i, r := range all {
		var err error
		if list[i], err = read(r); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// attempts bounds how often a change is repeated because another change came first.
const attempts = 10

// Change changes a schedule. It calls change with the current schedule, and again if another change came first. A schedule
// whose times change, or that is no longer paused, runs next at its first time after now.
func (b Book) Change(ctx context.Context, id string, change func(*Schedule) error) (*Schedule, error) {
	now, err := b.store.Time(ctx)
	if err != nil {
		return nil, err
	}
	r, err := b.store.Schedule(ctx, id)
	for range attempts {
		if err != nil {
			return nil, err
		}
		s, err := read(r)
		if err != nil {
			return nil, err
		}
		cron, zone, paused := s.Cron, s.Zone, s.Paused
		if err := change(s); err != nil {
			return nil, err
		}
		if s.Cron != cron || s.Zone != zone || s.Paused != paused {
			if err := s.Plan(now); err != nil {
				return nil, err
			}
		}
		record, err := s.record()
		if err != nil {
			return nil, err
		}
		written, changed, err := b.store.WriteSchedule(ctx, record, s.Next)
		if err != nil {
			return nil, err
		}
		if !changed {
			return read(written)
		}
		if r = written; r.Version == 0 {
			return b.Get(ctx, id) // it was deleted
		}
	}
	return nil, fmt.Errorf("%w: schedule %q was changed %d times meanwhile", store.ErrStore, id, attempts)
}

// Delete deletes a schedule. Its groups stay.
func (b Book) Delete(ctx context.Context, id string) error {
	r, err := b.store.Schedule(ctx, id)
	for range attempts {
		if err != nil {
			return err
		}
		r.Tenant, r.Body = tenantOf(r), nil
		written, changed, err := b.store.WriteSchedule(ctx, r, time.Time{})
		if err != nil || !changed || written.Version == 0 {
			return err
		}
		r = written
	}
	return fmt.Errorf("%w: schedule %q was changed %d times meanwhile", store.ErrStore, id, attempts)
}
