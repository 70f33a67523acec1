package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// store runs the scripts of a room. It keeps the last known state of the store, restores the room in a store that lost it, and
// decides when the store counts as away.
type store struct {
	identity
	wakeup
	view     *view
	sessions *sessions // what restore offers

	away        outage       // the store is away: no calls on the request path until a tick succeeds
	failing     atomic.Int64 // mono of the first of the calls that failed in a row; 0: none
	full        atomic.Int64 // mono of the last log line about a full store; 0: none
	local       local        // admissions of this gateway while the store is away
	replied     atomic.Int64 // order time of the last reply without clocks of its own
	claimWindow lowered
	passLife    lowered
	restores    chan struct{} // holds one value while a restore runs
	offer       *offer        // the rest of an unfinished restore; guarded by restores

	mu    sync.Mutex
	known knowledge
}

func (r *store) init(me identity, v *view, s *sessions) {
	r.identity, r.view, r.sessions = me, v, s
	r.wakeups, r.restores = make(chan struct{}, 1), make(chan struct{}, 1)
}

// outage reports whether the store is away, and keeps the error of the last call that found it away.
type outage struct {
	atomic.Bool
	cause atomic.Pointer[error]
}

// err returns ErrStore, with the cause.
func (o *outage) err() error {
	if cause := o.cause.Load(); cause != nil {
		return *cause
	}
	return ErrStore
}

// because keeps the cause.
func (o *outage) because(err error) {
	if !errors.Is(err, ErrStore) {
		err = fmt.Errorf("%w: %w", ErrStore, err)
	}
	o.cause.Store(&err)
}

// wakeup wakes the loop that ticks the room.
type wakeup struct {
	wakeups  chan struct{}
	resting  atomic.Bool   // the loop pauses for longer than a tick
	activity atomic.Uint64 // calls of wakeIdle
}

// lowered keeps the former value of a duration that a reload has lowered, for as long as sessions or claims may still depend on
// it. A restore sends the former value to a store that lost its data.
type lowered struct {
	mu      sync.Mutex
	longest time.Duration
	till    int64 // mono
}

func (w *lowered) changed(from, to time.Duration, now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if from > to && (from >= w.longest || now >= w.till) {
		w.longest, w.till = from, now+int64(from)
	}
}

// left returns the former value and for how long it still matters; 0 where the present value is the longest.
func (w *lowered) left(now int64) (longest, left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.longest, max(0, time.Duration(w.till-now))
}

// knowledge is the last known state of the room in the store.
type knowledge struct {
	epoch   string
	seq     int64
	fence   int64
	gaps    string // the store's silences by the newest snapshot, in the form of room_restore
	jumps   string // silences that replies have shown since
	jumped  int64  // order time of the last of these
	reset   int64  // order time of the last reset
	revokes int64  // Snapshot.Revocations up to which all revoked sessions are known
	cursor  int64  // revoked sessions are known up to this room time
	since   int64  // admissions are known up to this room time
}

// wake ends the pause of the loop.
func (r *wakeup) wake() {
	select {
	case r.wakeups <- struct{}{}:
	default:
	}
}

// wakeIdle ends the pause of an idle room. A busy room is ticked at its interval, however many join it.
func (r *wakeup) wakeIdle() {
	r.activity.Add(1)
	if r.resting.Load() {
		r.wake()
	}
}

func (r *store) knowledge() knowledge {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// header begins the reply of every room script.
type header struct {
	epoch      string
	seq, fence int64
	time, wall int64 // order time and Redis's clock
}

// epochError is returned when the store's epoch differs from the known one: the room must be restored first.
type epochError struct{ known string }

func (epochError) Error() string { return "the store has another epoch" }

// call runs a room script and returns what follows the header.
func (r *store) call(ctx context.Context, name string, args ...any) (header, []any, error) {
	k := r.knowledge()
	all := make([]any, 0, 4+len(args))
	all = append(all, r.c.now(), k.epoch, k.seq, r.view.policyArg())
	all = append(all, args...)
	observed := observeCall(ctx, name)
	sent := r.c.mono()
	reply, err := r.c.scripts.Run(ctx, name, r.keys, all...)
	observed(err)
	if err != nil {
		return header{}, nil, err
	}
	if len(reply) < 3 {
		return header{}, nil, fmt.Errorf("%s replied %v", name, reply)
	}
	if asString(reply[0]) == replyEpoch {
		return header{}, nil, epochError{k.epoch}
	}
	h := header{epoch: asString(reply[1]), seq: asInt(reply[2]), fence: asInt(reply[3]), time: asInt(reply[4]), wall: asInt(reply[5])}
	r.learn(h, sent, r.c.mono())
	return h, reply[6:], nil
}

// do is call with a deadline. Where the epoch has changed, it restores the room and repeats the call once: every script is safe
// to repeat.
func (r *store) do(ctx context.Context, timeout time.Duration, name string, args ...any) (header, []any, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	h, rest, err := r.call(ctx, name, args...)
	if other, ok := errors.AsType[epochError](err); ok {
		if err = r.restore(ctx, other.known); err == nil {
			h, rest, err = r.call(ctx, name, args...)
		}
	}
	if _, again := errors.AsType[epochError](err); again {
		err = fmt.Errorf("%w: %w", ErrStore, err)
	}
	return h, rest, err
}

// ask runs a script about n tickets on the request path.
func (r *store) ask(ctx context.Context, script string, args []any, n int) ([]reply, error) {
	if r.away.Load() {
		return nil, r.away.err() // the next successful tick ends this
	}
	h, rest, err := r.do(ctx, r.c.o.Timeout, script, args...)
	if err != nil {
		if redis.IsOOMError(err) {
			r.reportFull(err) // a full store refuses new tickets, but serves those that wait
		} else if errors.Is(err, ErrStore) {
			r.failed(err)
		}
		return nil, err
	}
	return replies(h, rest, n)
}

// reportFull logs, once a minute for each room, that the store's memory is full.
func (r *store) reportFull(err error) {
	now := max(1, r.c.mono())
	if last := r.full.Load(); last != 0 && now-last < int64(time.Minute) || !r.full.CompareAndSwap(last, now) {
		return
	}
	r.c.o.Log.Error("the store's memory is full: new visitors follow on_store_error, and those who wait are still admitted; "+
		"raise maxmemory of Redis, or remove other data from it", "room", r.id, "on_store_error", r.view.Snapshot().Policy.OnStoreError, "error", err)
}

// learn takes epoch, seq, fence and clocks from a reply.
func (r *store) learn(h header, sent, replied int64) {
	r.mu.Lock()
	if r.known.epoch == h.epoch {
		r.known.seq = max(r.known.seq, h.seq)
		r.known.fence = max(r.known.fence, h.fence)
	}
	r.mu.Unlock()
	r.failing.Store(0)
	r.syncClock(h, sent, replied)
}

// syncClock runs clock.sync. If the store was silent, it records the silence, since the store may lose its own record before a
// snapshot shows it.
func (r *store) syncClock(h header, sent, replied int64) {
	if jump := r.view.sync(h, sent, replied); jump > 0 {
		r.mu.Lock()
		r.known.jumps += " " + itoa(h.time) + ":" + itoa(jump)
		r.known.jumped = h.time
		r.mu.Unlock()
	}
}

// failed counts a call that the store did not answer. The store is away once calls have failed for a whole deadline, or at once
// if it was never reached; the room then serves by on_store_error until a tick succeeds.
func (r *store) failed(err error) {
	now := max(1, r.c.mono())
	if r.failing.CompareAndSwap(0, now) && r.view.anchor.Load() != nil {
		return
	}
	if r.view.anchor.Load() == nil || now-r.failing.Load() >= int64(r.c.o.Timeout) {
		r.markAway(err)
	}
}

// markAway marks the store as away.
func (r *store) markAway(err error) {
	r.away.because(err)
	if r.away.Load() {
		return
	}
	r.local.begin(r.c.mono()) // before away is set: its readers use local
	if r.away.CompareAndSwap(false, true) {
		r.wake() // an idle room would notice late that the store is back
		r.c.o.Log.Error("store unavailable", "room", r.id, "on_store_error", r.view.Snapshot().Policy.OnStoreError, "error", err)
	}
}

// markBack marks the store as back.
func (r *store) markBack() {
	if r.away.CompareAndSwap(true, false) {
		r.c.o.Log.Info("store is back", "room", r.id)
	}
}

// presenceNow returns order time, stopped while the store is away so that no presence ends meanwhile.
func (r *store) presenceNow() int64 {
	if a := r.view.anchor.Load(); a != nil && r.away.Load() {
		return a.time
	}
	return r.view.Now()
}

// reached returns the order time that the orders of this gateway have reached.
func (r *store) reached() int64 { return max(r.view.Now(), r.view.lastOrd.Load()) }

// unreachable reports whether the store must not be called on the request path: it is away, or was never reached.
func (r *store) unreachable(s *Snapshot) bool {
	return r.away.Load() || !s.Known && r.view.anchor.Load() == nil
}
