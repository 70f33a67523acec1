package admission

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/anteroom/anteroom/admission/ramp"
)

// record is a record of a rule that changes the room, as lua/lib/live.lua keeps it.
type record struct {
	version int64
	stopper string // who has changed the rate by hand since a ramp set it
	text    string
}

// rampRecord is the name of the record of a room's ramp.
const rampRecord = "ramp"

// records reads and replaces the records of a room.
type records struct {
	identity
	view   *view
	store  *store
	ticker *ticker
}

// read returns the record with a name; its version is 0 where there is none.
func (r *records) read(ctx context.Context, name string) (record, error) {
	ctx, cancel := context.WithTimeout(ctx, r.tickTimeout())
	defer cancel()
	all, err := r.c.o.Client.HMGet(ctx, r.keys[keyState], "record:"+name).Result()
	if err != nil {
		return record{}, fmt.Errorf("%w: %w", ErrStore, err)
	}
	text, ok := all[0].(string)
	if !ok {
		return record{}, nil
	}
	return parseRecord(text)
}

// parseRecord reads version:length:stopper text.
func parseRecord(text string) (record, error) {
	version, rest, _ := strings.Cut(text, ":")
	length, rest, ok := strings.Cut(rest, ":")
	v, err1 := strconv.ParseInt(version, 10, 64)
	n, err2 := strconv.Atoi(length)
	if err := errors.Join(err1, err2); !ok || err != nil || n < 0 || n > len(rest) {
		return record{}, fmt.Errorf("admission: record %q: %w", text, err)
	}
	return record{version: v, stopper: rest[:n], text: rest[n:]}, nil
}

// replace replaces a record that still has a version, and with it changes live fields: set or clear, field and value in turn. It
// reports whether it did. action is of the audit log; empty: no entry without a change.
func (r *records) replace(ctx context.Context, who, action, name string, version int64, text string, changes ...any) (bool, error) {
	args := append([]any{who, r.id, action, name, version, text}, changes...)
	_, rest, err := r.store.do(ctx, r.tickTimeout(), "room_act", args...)
	if err != nil {
		return false, err
	}
	if len(rest) != 1 || asInt(rest[0]) == 0 {
		return false, nil
	}
	return true, r.ticker.Tick(ctx)
}

// ramping runs the ramp of a room.
type ramping struct {
	identity
	view    *view
	store   *store
	records records

	mu      sync.Mutex
	known   record // the newest that this gateway has read
	ramp    ramp.Ramp
	epoch   string // of the store that it was read from
	changes int64  // Snapshot.Records then
}

func (r *ramping) init(me identity, v *view, s *store, t *ticker) {
	r.identity, r.view, r.store = me, v, s
	r.records = records{identity: me, view: v, store: s, ticker: t}
}

// Errors of StartRamp and StopRamp.
var (
	// ErrRamp is returned when a ramp runs already.
	ErrRamp = errors.New("a ramp runs in the room")
	// ErrNoRamp is returned when none runs.
	ErrNoRamp = errors.New("no ramp runs in the room")
)

// Ramp returns the newest ramp as this gateway knows it; false where the room has had none.
func (r *ramping) Ramp() (ramp.Ramp, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ramp, r.known.version > 0
}

// load reads the record if the room's records have changed since it was read.
func (r *ramping) load(ctx context.Context) error {
	s := r.view.Snapshot()
	r.mu.Lock()
	fresh := r.epoch == s.Epoch && r.changes == s.Records
	r.mu.Unlock()
	if fresh || !s.Known {
		return nil
	}
	return r.reload(ctx, s)
}

func (r *ramping) reload(ctx context.Context, s *Snapshot) error {
	rec, err := r.records.read(ctx, rampRecord)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec.version == 0 && r.known.version > 0 && r.epoch != s.Epoch { // the store lost it
		r.known = record{text: r.known.text}
		r.epoch, r.changes = s.Epoch, s.Records
		return nil
	}
	var now ramp.Ramp
	if rec.version > 0 {
		if now, err = ramp.Parse(rec.text); err != nil {
			return err
		}
		if rec.stopper != "" && !now.Over() {
			now = now.End(rec.stopper+" changed the rate", r.view.RedisNow())
		}
	}
	r.known, r.ramp, r.epoch, r.changes = rec, now, s.Epoch, s.Records
	return nil
}

// StartRamp begins a ramp and sets its first rate.
func (r *ramping) StartRamp(ctx context.Context, who string, spec ramp.Spec) (ramp.Ramp, error) {
	rec, err := r.records.read(ctx, rampRecord)
	if err != nil {
		return ramp.Ramp{}, err
	}
	if rec.version > 0 && rec.stopper == "" {
		if was, err := ramp.Parse(rec.text); err == nil && !was.Over() {
			return was, ErrRamp
		}
	}
	now := ramp.New(spec, who, r.view.RedisNow())
	done, err := r.records.replace(ctx, who, "ramp", rampRecord, rec.version, now.Text(), "set", "rate", now.Rate)
	if err != nil {
		return ramp.Ramp{}, err
	}
	if !done {
		return ramp.Ramp{}, ErrRamp
	}
	return now, r.load(ctx)
}

// StopRamp ends the ramp; the rate stays as it is.
func (r *ramping) StopRamp(ctx context.Context, who string) (ramp.Ramp, error) {
	for range 3 { // a gateway may take a step meanwhile
		if err := r.reload(ctx, r.view.Snapshot()); err != nil {
			return ramp.Ramp{}, err
		}
		r.mu.Lock()
		rec, was := r.known, r.ramp
		r.mu.Unlock()
		if rec.version == 0 || was.Over() {
			return was, ErrNoRamp
		}
		now := was.End(who+" stopped it", r.view.RedisNow())
		if done, err := r.records.replace(ctx, who, "ramp stop", rampRecord, rec.version, now.Text()); err != nil || done {
			return now, errors.Join(err, r.load(ctx))
		}
	}
	return ramp.Ramp{}, fmt.Errorf("%w: other gateways changed the ramp meanwhile", ErrStore)
}

// run calls Step every second until ctx ends.
func (r *ramping) run(ctx context.Context) {
	eachSecond(ctx, r.StepRamp, func(err error) { r.c.o.Log.Error("cannot step the ramp", "room", r.id, "error", err) })
}

// StepRamp takes the step of the ramp that is due, if no other gateway has taken it. Run calls it every second; tests may.
func (r *ramping) StepRamp(ctx context.Context) error {
	s := r.view.Snapshot()
	if !s.Known || r.store.away.Load() {
		return nil
	}
	if err := r.load(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	rec, was := r.known, r.ramp
	r.mu.Unlock()
	if rec.text == "" || rec.stopper != "" || was.Over() {
		return nil
	}
	h := ramp.Health{Paused: s.Policy.Paused}
	if was.P95 > 0 || was.Errors > 0 {
		origin, err := r.c.OriginHealth(ctx, r.view.schedule.Load().At(r.view.RedisNow()).Policy.Origin)
		if err != nil {
			return err
		}
		h.Measured, h.P95, h.ErrorRate = origin.Requests > 0, origin.P95, origin.ErrorRate()
	}
	now := was.After(r.view.RedisNow(), h)
	if now == was && rec.version > 0 {
		return nil
	}
	var changes []any
	action := ""
	switch {
	case now.Rate != was.Rate:
		action, changes = "ramp step", []any{"set", "rate", now.Rate}
	case now.State == ramp.Stopped:
		action = "ramp stop"
	}
	if _, err := r.records.replace(ctx, "ramp of "+was.By, action, rampRecord, rec.version, now.Text(), changes...); err != nil {
		return err
	}
	return r.load(ctx)
}
