package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// MaxSchedules is the most schedules of a store.
const MaxSchedules = 10_000

// ScheduleRecord is a schedule as the store keeps it: package schedule reads the body.
type ScheduleRecord struct {
	ID      string
	Version int64 // grows with each change; 0: it does not exist
	Body    []byte
}

// WriteSchedule creates (Version 0) or changes a schedule, or deletes it if Body is empty. next is when it is due; zero:
// never. If the schedule no longer has that version, nothing is changed, changed is true and the record the current one.
func (s scheduleStore) WriteSchedule(ctx context.Context, r ScheduleRecord, next time.Time) (now ScheduleRecord, changed bool, err error) {
	got, err := s.call(ctx, "schedule_write", r.ID, r.Version, r.Body, sinceEpoch(next), MaxSchedules)
	if err != nil {
		return ScheduleRecord{}, false, err
	}
	switch got.refusal() {
	case "changed":
		return scheduleRecord(r.ID, got.string(1)), true, nil
	case "quota":
		return ScheduleRecord{}, false, refuse(CodeQuota, "there are %d schedules: at most %d are kept; delete some", got.int(1), MaxSchedules)
	}
	r.Version = got.int(1)
	c := s.conf.Load()
	if c.WaitReplicas == 0 && c.WaitLocal == 0 {
		return r, false, nil
	}
	return r, false, s.confirm(ctx, c.WaitReplicas, c.WaitLocal)
}

// dueBound is how many schedules DueSchedules reads.
const dueBound = 100

// DueSchedules returns schedules that are due, and the store's time.
func (s scheduleStore) DueSchedules(ctx context.Context) (now time.Time, due []ScheduleRecord, err error) {
	r, err := s.call(ctx, "schedule_due", dueBound)
	if err != nil {
		return time.Time{}, nil, err
	}
	for i := 1; i+1 < len(r); i += 2 {
		due = append(due, scheduleRecord(r.string(i), r.string(i+1)))
	}
	return micros(r.int(0)), due, nil
}

// Time returns the store's time.
func (s scheduleStore) Time(ctx context.Context) (time.Time, error) {
	r, err := s.call(ctx, "schedule_due", 0)
	return micros(r.int(0)), err
}

// Schedule returns one schedule.
func (s scheduleStore) Schedule(ctx context.Context, id string) (ScheduleRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	text, err := s.o.Client.HGet(ctx, scheduleKeys(s.o.Prefix)[0], id).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return ScheduleRecord{}, refuse(CodeNotFound, "there is no schedule %q", id)
	case err != nil:
		return ScheduleRecord{}, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return scheduleRecord(id, text), nil
}

// ScheduleCount returns the number of all schedules.
func (s scheduleStore) ScheduleCount(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	n, err := s.o.Client.HLen(ctx, scheduleKeys(s.o.Prefix)[0]).Result()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return n, nil
}

// Schedules returns all schedules in no order.
func (s scheduleStore) Schedules(ctx context.Context) ([]ScheduleRecord, error) {
	all := map[string]ScheduleRecord{}
	err := scan(ctx, func(cursor uint64) ([]string, uint64, error) {
		ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
		defer cancel()
		return s.o.Client.HScan(ctx, scheduleKeys(s.o.Prefix)[0], cursor, "", scanStep).Result()
	}, func(id, text string) { all[id] = scheduleRecord(id, text) })
	list := make([]ScheduleRecord, 0, len(all))
	for _, r := range all {
		list = append(list, r)
	}
	return list, err
}

func (s scheduleStore) call(ctx context.Context, script string, args ...any) (reply, error) {
	if err := s.Prepare(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	r, err := s.scripts.Run(ctx, script, scheduleKeys(s.o.Prefix), append([]any{s.now()}, args...)...)
	if err != nil && IsFull(err) {
		s.reportFull(script)
		return nil, fmt.Errorf("%w: %w", ErrFull, err)
	}
	return reply(r), err
}

func scheduleRecord(id, text string) ScheduleRecord {
	version, body, _ := strings.Cut(text, " ")
	n, _ := strconv.ParseInt(version, 10, 64) // 0: it does not exist
	return ScheduleRecord{ID: id, Version: n, Body: []byte(body)}
}
