package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/anteroom/anteroom/admission/reason"
	"github.com/anteroom/anteroom/admission/series"
)

// Measures are what a gateway measures of a room beyond its snapshot.
type Measures struct {
	Known           bool    // Wait, Low and High are
	Wait, Low, High float64 // of a visitor who joins now, s
	// Counts are totals of this gateway since its start, by name: at most 200 names of lower-case letters, digits, dots and underscores, which the code fixes.
	Counts map[string]int64
}

// Recorder records the figures of the rooms in the store, once a second however many gateways run, and keeps what the reasons of the rooms
// need. Its methods are safe for concurrent use.
type Recorder struct {
	c       *Core
	fleet   *Fleet
	measure func(room string, m *Measures)

	mu    sync.Mutex
	rooms map[string]*recording
}

// NewRecorder returns a Recorder. measure sets what this gateway measures of a room.
func NewRecorder(c *Core, fleet *Fleet, measure func(room string, m *Measures)) *Recorder {
	return &Recorder{c: c, fleet: fleet, measure: measure, rooms: map[string]*recording{}}
}

// recording is what this gateway knows of the recorded figures of a room. Recorder.mu guards it.
type recording struct {
	causes causes
	pace   pace
	sent   map[string]int64 // totals of Measures.Counts that are recorded
	next   int64            // second from which on the figures of an idle room are recorded again
}

// Intervals of the loop.
const (
	noticeEvery = 100 * time.Millisecond // looks for changes by operators
	recordAfter = 150 * time.Millisecond // from the start of a second of Redis's clock
	idleRecord  = 60                     // seconds between two records of an idle room
)

// Run records the rooms each second until ctx ends, and looks up who has changed a room when its live changes show that.
func (r *Recorder) Run(ctx context.Context) error {
	t := time.NewTicker(noticeEvery)
	defer t.Stop()
	failed := map[string]int64{}
	warn := func(what string, err error) {
		if err == nil || errors.Is(err, ErrStore) || ctx.Err() != nil {
			return
		}
		if now := r.c.mono(); failed[what] == 0 || now-failed[what] > int64(time.Minute) {
			failed[what] = max(1, now)
			r.c.o.Log.Error(what, "error", err)
		}
	}
	var last int64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		warn("cannot read who has changed the rooms", r.Notice(ctx))
		if second := r.second(); second != last {
			last = second
			warn("cannot record the figures of the rooms", r.Record(ctx))
		}
	}
}

// second returns the second of Redis's clock whose figures are to be recorded.
func (r *Recorder) second() int64 {
	for _, room := range r.c.all() {
		return (room.RedisNow() - recordAfter.Microseconds()) / 1e6
	}
	return 0
}

// at returns the recording of a room; mu is held.
func (r *Recorder) at(room string) *recording {
	have := r.rooms[room]
	if have == nil {
		have = &recording{sent: map[string]int64{}}
		r.rooms[room] = have
	}
	return have
}

// Record records each room once. Run calls it; tests may.
func (r *Recorder) Record(ctx context.Context) error {
	var errs []error
	health := map[string]OriginHealth{}
	for _, room := range r.c.all() {
		if !room.Snapshot().Known || room.store.away.Load() {
			continue
		}
		errs = append(errs, r.record(ctx, room, health))
	}
	return errors.Join(errs...)
}

// record records a room. health has the origins that were read for the rooms before.
func (r *Recorder) record(ctx context.Context, room *Room, health map[string]OriginHealth) error {
	s := room.Snapshot()
	m := Measures{}
	r.measure(room.id, &m)
	why := r.Reason(room)

	r.mu.Lock()
	k := r.at(room.id)
	k.pace.add(s)
	counts, totals := k.news(m.Counts)
	now := room.RedisNow()
	due := !room.view.idle(s) || k.causes.code != why.Code || now/1e6 >= k.next
	rates := k.pace.rates(s)
	r.mu.Unlock()

	text := ""
	if due {
		f, err := r.figures(ctx, room, &m, health)
		if err != nil {
			return err
		}
		if rates.EmptyIn > 0 {
			f[series.EmptyIn] = rates.EmptyIn
		}
		f[series.Reason] = int64(reason.Index(why.Code))
		text = f.String()
	}
	if text == "" && len(counts) == 0 {
		return nil
	}
	since, end, err := r.send(ctx, room, reason.Index(why.Code), text, counts)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.Copy(k.sent, totals)
	if due {
		k.next = now/1e6 + idleRecord
	}
	k.causes.record(why.Code, since, end, r.c.mono())
	return nil
}

// send runs series_record. It returns since when the reason holds, in µs of Redis's clock, and for how long the first session is kept; 0: not
// known.
func (r *Recorder) send(ctx context.Context, room *Room, reason int, figures string, counts []any) (since int64, end time.Duration, err error) {
	keys := append([]string{room.keys[keyState], room.keys[keySessions], room.keys[keyMinutes]}, seriesKeys(r.c.o.Prefix, room.id)...)
	args := append([]any{r.c.now(), series.Kinds(), reason, figures}, counts...)
	ctx, cancel := context.WithTimeout(ctx, r.c.tickTimeout())
	defer cancel()
	v, err := r.c.scripts.Run(ctx, "series_record", keys, args...)
	if err != nil {
		return 0, 0, err
	}
	if len(v) != 5 || v.String(0) != replyOK {
		return 0, 0, fmt.Errorf("series_record replied %v", v)
	}
	return v.Int(2), time.Duration(v.Int(3)) * time.Microsecond, nil
}

// news returns the counts since those that are recorded, in the form of series_record, and the totals that include them.
func (k *recording) news(totals map[string]int64) (counts []any, with map[string]int64) {
	for name, n := range totals {
		if grown := n - k.sent[name]; grown > 0 {
			counts = append(counts, name, grown)
		}
	}
	return counts, totals
}

// figures returns the figures of a room now.
func (r *Recorder) figures(ctx context.Context, room *Room, m *Measures, health map[string]OriginHealth) (series.Figures, error) {
	s, f := room.Snapshot(), series.NewFigures()
	f[series.Waiting], f[series.Parked], f[series.Admitted], f[series.Inside] = s.Waiting, s.Parked, s.Admitted, s.Admitted+s.Active
	f[series.MaxActive], f[series.Limit], f[series.Gateways] = s.Policy.MaxActive, s.Policy.Rate, s.Gateways
	f[series.Joins], f[series.Admissions], f[series.Claims], f[series.Lapses], f[series.Abandons] = s.Joins, s.Admissions, s.Claims, s.Lapses, s.Abandons
	f[series.Born] = (s.RedisTime - s.RoomTime + s.Since) / 1e6
	if s.Policy.Strategy == StrategyAdaptive && s.Target > 0 {
		f[series.Wanted] = s.Target
	}
	if s.Policy.Budgeted {
		f[series.Expected] = room.Expected()
	}
	if m.Known {
		f[series.Wait], f[series.WaitLow], f[series.WaitHigh] = milliseconds(m.Wait), milliseconds(m.Low), milliseconds(m.High)
	}
	origin := s.Policy.Origin
	if origin == "" {
		return f, nil
	}
	h, known := health[origin]
	if !known {
		var err error
		if h, err = r.c.OriginHealth(ctx, origin); err != nil {
			return f, err
		}
		health[origin] = h
	}
	if h.Requests > 0 {
		f[series.P95], f[series.ErrorRate] = h.P95.Microseconds(), int64(h.ErrorRate()*1e6+0.5)
	}
	if n, known := r.fleet.InFlight(origin); known {
		f[series.InFlight] = n
	}
	return f, nil
}

func milliseconds(s float64) int64 { return int64(min(max(0, s), 1e9)*1000 + 0.5) }
