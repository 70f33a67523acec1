package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	Tenant  string // to write: whose it is, also where it is deleted; not read
}

// WriteSchedule creates (Version 0) or changes a schedule, or deletes it if Body is empty. next is when it is due; zero:
// never. If the schedule no longer has that version, nothing is changed, changed is true and the record the current one.
func (s scheduleStore) WriteSchedule(ctx context.Context, r ScheduleRecord, next time.Time) (now ScheduleRecord, changed bool, err error) {
	got, err := s.call(ctx, "schedule_write", r.ID, r.Version, r.Body, sinceEpoch(next), MaxSchedules, r.Tenant)
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

// readAtOnce is how many schedules one command reads.
const readAtOnce = 50

// SchedulesOf returns the schedules of a tenant by id. indexed reports whether the index of tenants has as many schedules as there are:
// otherwise IndexSchedules has to complete it.
func (s scheduleStore) SchedulesOf(ctx context.Context, tenant string) (list []ScheduleRecord, indexed bool, err error) {
	keys := scheduleKeys(s.o.Prefix)
	var count, owned *redis.IntCmd
	var mine *redis.StringSliceCmd
	err = s.pipelined(ctx, func(ctx context.Context, p redis.Pipeliner) {
		count, owned = p.HLen(ctx, keys[0]), p.ZCard(ctx, keys[2])
		mine = p.ZRangeByLex(ctx, keys[2], &redis.ZRangeBy{Min: "[" + tenant + "/", Max: "(" + tenant + "0"}) // 0 follows /
	})
	if err != nil {
		return nil, false, err
	}
	ids := mine.Val()
	for i := range ids {
		ids[i] = ids[i][len(tenant)+1:]
	}
	list, err = s.schedules(ctx, ids)
	return list, count.Val() == owned.Val(), err
}

// schedules reads schedules by their ids, without those that do not exist.
func (s scheduleStore) schedules(ctx context.Context, ids []string) (list []ScheduleRecord, err error) {
	for part := range slices.Chunk(ids, readAtOnce) {
		var read *redis.SliceCmd
		if err := s.pipelined(ctx, func(ctx context.Context, p redis.Pipeliner) {
			read = p.HMGet(ctx, scheduleKeys(s.o.Prefix)[0], part...)
		}); err != nil {
			return nil, err
		}
		for i, v := range read.Val() {
			if text, there := v.(string); there {
				list = append(list, scheduleRecord(part[i], text))
			}
		}
	}
	return list, nil
}

// IndexSchedules completes the index of tenants: it has no schedule that a process of an earlier version has created, and still has those that
// such a process has deleted. tenant returns whose a schedule is. Schedules that are created meanwhile are in the index already.
func (s scheduleStore) IndexSchedules(ctx context.Context, tenant func(ScheduleRecord) string) error {
	keys := scheduleKeys(s.o.Prefix)
	var owners, ids *redis.StringSliceCmd
	// In this order: what has an owner and no longer exists was deleted.
	err := s.pipelined(ctx, func(ctx context.Context, p redis.Pipeliner) {
		owners, ids = p.ZRange(ctx, keys[2], 0, -1), p.HKeys(ctx, keys[0])
	})
	if err != nil {
		return err
	}
	missing, ownerOf := map[string]bool{}, map[string]string{}
	for _, id := range ids.Val() {
		missing[id] = true
	}
	var gone []any
	for _, owner := range owners.Val() {
		_, id, _ := strings.Cut(owner, "/")
		other, twice := ownerOf[id]
		switch {
		case twice: // deleted by such a process and created again for another tenant
			gone, missing[id] = append(gone, other, owner), true
		case !missing[id]:
			gone = append(gone, owner)
		default:
			ownerOf[id] = owner
			delete(missing, id)
		}
	}
	for part := range slices.Chunk(gone, readAtOnce) {
		if err := s.pipelined(ctx, func(ctx context.Context, p redis.Pipeliner) { p.ZRem(ctx, keys[2], part...) }); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(slices.Sorted(maps.Keys(missing)), readAtOnce) {
		list, err := s.schedules(ctx, part)
		if err != nil {
			return err
		}
		add := make([]redis.Z, len(list))
		for i, r := range list {
			add[i].Member = tenant(r) + "/" + r.ID
		}
		if len(add) == 0 {
			continue
		}
		if err := s.pipelined(ctx, func(ctx context.Context, p redis.Pipeliner) { p.ZAdd(ctx, keys[2], add...) }); err != nil {
			return err
		}
	}
	return nil
}

// pipelined sends commands together, within the store's timeout.
func (s scheduleStore) pipelined(ctx context.Context, commands func(ctx context.Context, p redis.Pipeliner)) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	_, err := s.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		commands(ctx, p)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return nil
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
