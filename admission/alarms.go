package admission

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/anteroom/anteroom/admission/alarm"
)

// alarms watches the alarms of a room and acts on them, once over all gateways.
type alarms struct {
	identity
	view    *view
	store   *store
	records records

	mu      sync.Mutex
	list    []watched
	epoch   string // of the store that the records were read from
	changes int64  // Snapshot.Records then
}

// watched is an alarm of the configuration with what is known of it.
type watched struct {
	spec    alarm.Spec
	watch   alarm.Watch
	record  alarm.Record
	version int64
}

// AlarmState is an alarm as this gateway knows it.
type AlarmState struct {
	Spec   alarm.Spec
	Watch  alarm.Watch
	Record alarm.Record
}

func (r *alarms) init(me identity, v *view, s *store, t *ticker) {
	r.identity, r.view, r.store = me, v, s
	r.records = records{identity: me, view: v, store: s, ticker: t}
}

// SetAlarms replaces the alarms by those of the configuration. What was seen of an alarm that is unchanged is kept.
func (r *alarms) SetAlarms(specs []alarm.Spec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]watched, len(specs))
	for i, spec := range specs {
		list[i].spec = spec
		if at := slices.IndexFunc(r.list, func(w watched) bool { return w.spec == spec }); at >= 0 {
			list[i] = r.list[at]
		}
	}
	r.list, r.epoch = list, ""
}

// Alarms returns the alarms in the order of the configuration.
func (r *alarms) Alarms() []AlarmState {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]AlarmState, len(r.list))
	for i, w := range r.list {
		all[i] = AlarmState{w.spec, w.watch, w.record}
	}
	return all
}

// run calls WatchAlarms every second until ctx ends.
func (r *alarms) run(ctx context.Context) {
	eachSecond(ctx, r.WatchAlarms, func(err error) { r.c.o.Log.Error("cannot act on the alarms", "room", r.id, "error", err) })
}

// WatchAlarms looks at each alarm, and acts on those that are due if no other gateway has. Run calls it every second; tests may.
func (r *alarms) WatchAlarms(ctx context.Context) error {
	s := r.view.Snapshot()
	r.mu.Lock()
	specs := make([]alarm.Spec, len(r.list))
	for i := range r.list {
		specs[i] = r.list[i].spec
	}
	r.mu.Unlock()
	if len(specs) == 0 || !s.Known || r.store.away.Load() {
		return nil
	}
	if err := r.load(ctx, s, specs); err != nil {
		return err
	}
	var origin OriginHealth
	if slices.ContainsFunc(specs, func(a alarm.Spec) bool { return a.When == alarm.OriginErrors || a.When == alarm.OriginP95 }) {
		var err error
		if origin, err = r.c.OriginHealth(ctx, r.view.schedule.Load().At(r.view.RedisNow()).Policy.Origin); err != nil {
			return err
		}
	}
	var failed error
	for _, spec := range specs {
		value, known := measure(spec.When, s, &origin)
		failed = errors.Join(failed, r.look(ctx, spec, value, known))
	}
	return failed
}

// measure returns the value of a quantity; false if it is not known.
func measure(when alarm.When, s *Snapshot, origin *OriginHealth) (float64, bool) {
	switch when {
	case alarm.OriginErrors:
		return origin.ErrorRate(), origin.Requests > 0
	case alarm.OriginP95:
		return origin.P95.Seconds(), origin.Requests > 0
	case alarm.Inside:
		return float64(s.Active + s.Admitted), true
	}
	return float64(s.Waiting), true
}

// load reads the records of all alarms if any record of the room has changed since.
func (r *alarms) load(ctx context.Context, s *Snapshot, specs []alarm.Spec) error {
	r.mu.Lock()
	fresh := r.epoch == s.Epoch && r.changes == s.Records
	r.mu.Unlock()
	if fresh {
		return nil
	}
	for _, spec := range specs {
		rec, err := r.records.read(ctx, alarmRecord(spec.Name))
		if err != nil {
			return err
		}
		shared, err := alarm.Parse(rec.text)
		if err != nil {
			return err
		}
		r.change(spec, func(w *watched) { w.record, w.version = shared, rec.version })
	}
	r.mu.Lock()
	r.epoch, r.changes = s.Epoch, s.Records
	r.mu.Unlock()
	return nil
}

func alarmRecord(name string) string { return "alarm:" + name }

// change calls f for an alarm that is still configured.
func (r *alarms) change(spec alarm.Spec, f func(*watched)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.list {
		if r.list[i].spec == spec {
			f(&r.list[i])
		}
	}
}

// look looks at one alarm and takes the step that is due.
func (r *alarms) look(ctx context.Context, spec alarm.Spec, value float64, known bool) error {
	now := r.view.RedisNow()
	var seen watched
	r.change(spec, func(w *watched) {
		w.watch = w.watch.Look(&spec, now, value, known)
		seen = *w
	})
	next, action := seen.record, "alarm"
	var changes []any
	field, to := fieldOf(&spec)
	have, live := r.liveValue(field)
	switch alarm.Next(&spec, &seen.watch, &seen.record, now) {
	case alarm.Nothing:
		return nil
	case alarm.Act:
		next = alarm.Record{Fired: now, Active: true}
		if field != "" {
			changes, next.Resumes = []any{"set", field, to}, spec.ResumeAfter > 0
			if live {
				next.Before = &have
			}
		}
	case alarm.Rearm:
		next.Active, action = false, ""
	case alarm.Resume:
		next.Active, next.Resumes, action = false, false, "alarm over"
		switch {
		case !live || have != to: // an operator has changed it since
			action = ""
		case next.Before != nil:
			changes = []any{"set", field, *next.Before}
		default:
			changes = []any{"clear", field, ""}
		}
	}
	done, err := r.records.replace(ctx, "alarm "+spec.Name, action, alarmRecord(spec.Name), seen.version, next.Text(), changes...)
	if err != nil || !done {
		return err
	}
	r.change(spec, func(w *watched) { w.record, w.version = next, seen.version+1 })
	if action != "" {
		r.c.o.Log.Warn("alarm", "room", r.id, "alarm", spec.Name, "when", spec.When, "value", value, "above", spec.Above, "do", spec.Do, "over", action != "alarm")
	}
	return nil
}

// fieldOf returns the live field that an alarm sets, and its value there; empty: none.
func fieldOf(spec *alarm.Spec) (field, value string) {
	switch spec.Do {
	case alarm.Pause:
		return "paused", bit(true)
	case alarm.Rate:
		return "rate", itoa(spec.Rate)
	}
	return "", ""
}

// liveValue returns the live value of a field; false where it is as configured.
func (r *alarms) liveValue(field string) (string, bool) {
	all := r.view.Snapshot().LiveFields()
	for i := 0; i+1 < len(all); i += 2 {
		if all[i] == field {
			return all[i+1], true
		}
	}
	return "", false
}
