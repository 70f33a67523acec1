package admission

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anteroom/anteroom/admission/snapshot"
)

// revokedMost is how many revoked sessions one tick fetches at most.
const revokedMost = 1000

// admitMost is how many tickets one tick admits at most; at a higher rate the next ticks catch up.
const admitMost = 5000

// ticker keeps the snapshot of a room up to date: it ticks the room, or reads the snapshot of an idle room that other gateways
// tick.
type ticker struct {
	identity
	view     *view
	draws    *draws
	store    *store
	memory   *memory
	sessions *sessions
	offline  *offline
	lease    *lease

	first    chan struct{} // closed when the first tick has ended or failed
	ended    sync.Once     // closes first
	stopLoop context.CancelFunc

	ticking  sync.Mutex    // held during a tick, so that snapshots are adopted in order; guards what follows
	ticked   int64         // mono of the last tick
	interval time.Duration // between the last tick and the next
	flow     []Flow
}

// loop ticks the room until ctx ends, then sends what is pending.
func (r *ticker) loop(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	var last time.Time
	resting := false // the timer ends the pause of an idle room
	var shown uint64 // the activity that the newest snapshot shows
	tried := func() { r.ended.Do(func() { close(r.first) }) }
	defer tried()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.tickTimeout())
			if !r.store.away.Load() {
				if err := r.Tick(last); err != nil {
					r.c.o.Log.Warn("cannot send the last heartbeats; other gateways send those of sessions that go on", "room", r.id, "error", err)
				}
			}
			cancel()
			return
		case <-r.store.wakeups:
			resting = false
			if early := snapshot.SoonestTick - time.Since(last); early > 0 { // wakeups meanwhile share the tick
				t.Reset(early)
				continue
			}
		case <-t.C:
		}
		last = time.Now()
		activity, seq := r.store.activity.Load(), r.view.Snapshot().Seq
		var idle bool
		var err error
		if resting {
			idle, err = r.readIdle(ctx)
		}
		if !idle && err == nil {
			err = r.Tick(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.store.failed(err)
		}
		tried()
		if r.view.Snapshot().Seq != seq {
			shown = activity
		}
		pause := r.pause()
		if shown != activity { // another tick was a moment ago, so the snapshot does not show the joins
			pause = min(pause, r.c.o.Tick)
		}
		resting = pause > r.c.o.Tick
		r.store.resting.Store(resting)
		if resting && r.store.activity.Load() != activity {
			r.store.wake() // the tick may have been before a join
		}
		if pause == idlePause {
			pause = r.c.untilReading()
		}
		t.Reset(pause)
	}
}

// pause returns the time to the next tick.
func (r *ticker) pause() time.Duration {
	s := r.view.Snapshot()
	p, interval := &s.Policy, r.c.o.Tick
	if s.Known && !r.store.away.Load() && !p.Paused && !p.Closed() && !s.Gathering() && r.view.length(s) > 0 && (p.MaxActive == 0 || s.Admitted+s.Active < p.MaxActive) {
		interval = s.TickInterval(r.c.o.Tick)
	}
	r.ticking.Lock() // a change by an operator ticks too
	r.interval = interval
	leaseSpent, due := r.lease.left == 0 && r.lease.keep > 0, r.lease.due
	r.ticking.Unlock()
	if due > 0 {
		return min(interval, max(0, time.Duration(due-r.c.mono())))
	}
	if leaseSpent {
		return interval // without a lease the next visitor would wait for an idle room's tick
	}
	if s.Known && !r.store.away.Load() && r.view.idle(s) {
		if s.Gathering() { // the store must record the opening soon
			return min(idlePause, max(r.c.o.Tick/10, time.Duration(s.Policy.OpensAt-r.view.RedisNow())*time.Microsecond))
		}
		return idlePause
	}
	return interval
}

// Tick sends heartbeats, runs room_advance and adopts the new snapshot. Run calls it; tests may.
func (r *ticker) Tick(ctx context.Context) error {
	r.ticking.Lock()
	defer r.ticking.Unlock()
	err := r.tick(ctx)
	if err != nil {
		r.replan()
	}
	return err
}

// show makes s the current snapshot.
func (r *ticker) show(s *Snapshot) {
	if was := r.view.snap.Swap(s); was != nil {
		r.store.passLife.changed(was.Policy.SessionTTL*3/2, s.Policy.SessionTTL*3/2, r.c.mono()) // the life of a session
	}
}

// replan applies the current configuration when the store provides no newer snapshot, so that reloads and events take effect
// during an outage.
func (r *ticker) replan() {
	s, now := r.view.Snapshot(), r.view.RedisNow()
	file := r.view.schedule.Load().At(now)
	if s.Configured == file {
		return
	}
	next := s.WithPolicy(file, now)
	r.view.change(func(b *sinceSnapshot) { b.snap = next })
	r.show(next)
}

func (r *ticker) tick(ctx context.Context) error {
	l := r.lease
	if l.late = l.due > 0 && r.c.mono() >= l.due; l.late {
		l.due = 0
	}
	if err := r.c.prepare(ctx); err != nil {
		return err
	}
	if err := r.sessions.sendRevoked(ctx); err != nil {
		return err
	}
	if err := r.sessions.sendHeartbeats(ctx); err != nil {
		return err
	}
	if err := r.offline.enrolSigned(ctx); err != nil {
		return err
	}
	// The budget may be on another master than the room. Without a lease nobody is admitted; everything else goes on.
	granted, budgetErr := r.lease.borrow(ctx, true)
	var err error
	for more := true; more; granted = "" {
		if more, err = r.advance(ctx, granted); err != nil {
			return err
		}
	}
	if budgetErr == nil {
		budgetErr = r.lease.repay(ctx)
	}
	r.lease.noteBudget(budgetErr)
	r.store.markBack()
	r.ticked = r.c.mono()
	r.forget()
	return nil
}

// forget drops a part of what this process need not remember any longer.
func (r *ticker) forget() {
	now, p := r.c.mono(), &r.view.Snapshot().Policy
	r.memory.forget(now, p.Absence, p.ClaimWindow)
	r.sessions.forgetSessions(now)
}

// advance runs room_advance with a lease of the origin's budget, or "", and applies the reply. more reports that revoked sessions
// are left to fetch.
func (r *ticker) advance(ctx context.Context, lease string) (more bool, err error) {
	r.store.mu.Lock()
	cursor, since := r.store.known.cursor, r.store.known.since
	r.store.mu.Unlock()

	taken, before := r.view.arrived.tally(), r.view.sinceSnapshot.Load().taken
	var sent []arrived
	for i := range taken {
		if second, n := taken.since(&before, i); n > 0 {
			sent = append(sent, arrived{second: second, count: n})
		}
	}
	have := r.view.Snapshot()
	gap := cmp.Or(r.interval, r.c.o.Tick) * 7 / 10
	if lease != "" && r.lease.tight {
		gap = 0 // the budget does not fill up before the lease is spent
	}
	var reached int64
	if r.store.away.Load() && r.view.anchor.Load() != nil {
		reached = r.store.reached()
	}
	given := r.store.local.owed.Load()
	args := make([]any, 0, 10+2*len(sent))
	args = append(args, gap.Microseconds(), r.c.o.Gateway, cursor, admitMost, have.Seq, since, lease, r.draws.reportDraw(have), reached, given)
	for _, a := range sent {
		args = append(args, a.second, a.count)
	}
	h, rest, err := r.store.do(ctx, r.tickTimeout(), "room_advance", args...)
	if err != nil {
		// The call may have run. Arrivals that are counted twice would worsen every position for a minute; arrivals that are
		// not counted make positions too good for as long.
		if errors.Is(err, ErrStore) {
			r.view.change(func(b *sinceSnapshot) { b.taken = taken })
		}
		return false, err
	}
	r.store.local.owed.Add(-given)
	if len(sent) > 0 {
		for i := range sent {
			sent[i].seq = h.seq
		}
		// Where another gateway has ticked, only the snapshot after the next tick shows them.
		r.view.change(func(b *sinceSnapshot) { b.taken, b.sent = taken, slices.Concat(b.sent, sent) })
	}
	if len(rest) < 8 {
		return false, errors.New("admission: room_advance replied too few values")
	}
	r.lease.borrowed(rest)
	r.draws.adoptDraw(asString(rest[7]))
	if text := asString(rest[0]); text != "" {
		if err := r.adopt(ctx, text); err != nil {
			return false, err
		}
	}
	n := r.timed(rest[1], 3, &r.store.known.cursor, func(id ID, end int64) {
		if end == 0 || end+passLeeway.Microseconds() > r.view.Now() {
			r.sessions.markRevoked(id, end)
		}
	})
	if n < revokedMost {
		r.store.mu.Lock()
		r.store.known.revokes = r.view.Snapshot().Revocations
		r.store.mu.Unlock()
	}
	now := r.c.mono()
	r.timed(rest[2], 3, &r.store.known.since, func(id ID, wall int64) {
		if m, ok := r.memory.get(id, now); ok && m.standing.State != Waiting {
			return
		}
		r.memory.put(id, remembered{standing: Standing{State: Admitted, AdmittedAt: wall, Ticket: Ticket{ID: id}}, at: now, seenAt: wall + h.time - h.wall})
	})
	return n == revokedMost, nil
}

// timed calls f for a list of groups of size values: an id, its room time, and others, of which f gets the last. It moves the
// cursor to the newest time and returns the number of groups.
func (r *ticker) timed(list any, size int, cursor *int64, f func(id ID, last int64)) int {
	v := asList(list)
	for i := 0; i+size <= len(v); i += size {
		t, _ := strconv.ParseFloat(asString(v[i+1]), 64) // a score: an integer below 2^53
		at := int64(t)
		if id, ok := toID(asString(v[i])); ok {
			f(id, asInt(v[i+size-1]))
		}
		r.store.mu.Lock()
		*cursor = max(*cursor, at)
		r.store.mu.Unlock()
	}
	return len(v) / size
}

// adopt parses a snapshot and makes it the current one.
func (r *ticker) adopt(ctx context.Context, text string) error {
	s, err := snapshot.Parse(text, r.view.schedule.Load())
	if err != nil {
		return err
	}
	old := r.view.Snapshot()
	if old.Known && old.Epoch == s.Epoch && old.Seq >= s.Seq {
		return nil
	}
	if r.view.plan(s.Events) {
		if s, err = snapshot.Parse(text, r.view.schedule.Load()); err != nil {
			return err
		}
	}
	now := r.c.mono()
	s.ReadAt = now
	if a := r.view.anchor.Load(); a != nil && r.c.o.Now == nil {
		// Another gateway's tick wrote it a moment ago.
		s.ReadAt -= max(0, (a.wall-s.RedisTime)*1000)
	}
	if old.Epoch != s.Epoch || len(r.flow) == 0 {
		flow, err := r.loadFlow(ctx)
		if err != nil {
			return err
		}
		r.flow = flow
	}
	if err := r.loadFacts(ctx, s, &old.Facts); err != nil {
		return err
	}
	if opens := s.Policy.OpensAt; s.Gathering() && opens != s.Configured.Policy.OpensAt && r.draws.otherOpening != opens {
		r.draws.otherOpening = opens
		r.c.o.Log.Warn("another gateway's configuration has a later opening of the lottery; the later one holds",
			"room", r.id, "opens_at", time.UnixMicro(opens).UTC(), "here", time.UnixMicro(s.Configured.Policy.OpensAt).UTC())
	}
	if s.Evacuation.Fence < old.Evacuation.Fence { // a gateway of an earlier version built the snapshot
		s.Evacuation = old.Evacuation
	}
	s.Flow = r.mergeFlow(s.Flow, s.RoomTime)
	s.CapRanks(old)

	r.store.mu.Lock()
	if r.store.known.epoch == s.Epoch {
		r.store.known.seq = max(r.store.known.seq, s.Seq) // it may have been read without a script
	}
	r.store.known.epoch, r.store.known.fence = s.Epoch, max(r.store.known.fence, s.Fence)
	r.store.known.gaps, r.store.known.reset = silencesArg(s.Silences), s.Reset
	if s.Time >= r.store.known.jumped {
		r.store.known.jumps = ""
	}
	r.store.mu.Unlock()
	r.view.change(func(b *sinceSnapshot) {
		b.snap, b.recent = s, b.recent.after(s.Time)
		b.sent = slices.DeleteFunc(slices.Clone(b.sent), func(t arrived) bool {
			return t.seq <= s.Seq || s.Epoch != old.Epoch
		})
		if old.Known && old.Epoch != s.Epoch {
			b.before = &former{snap: old, until: now + int64(90*time.Second), base: s.Admissions}
		}
		if b.before != nil && now > b.before.until {
			b.before = nil
		}
	})
	r.show(s)
	if s.Evacuation.Fence > old.Evacuation.Fence {
		r.memory.evacuate(s.Evacuation.Fence)
		r.sessions.evacuate()
	}
	return nil
}

// silencesArg returns silences in the form of room_restore.
func silencesArg(silences []snapshot.Silence) string {
	words := make([]string, len(silences))
	for i, g := range silences {
		words[i] = itoa(g.Till) + ":" + itoa(g.Length)
	}
	return strings.Join(words, " ")
}
