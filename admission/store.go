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

// store runs the scripts of a room. It keeps what this process last heard of the store, restores the room in a store that
// lost it, and decides when the store counts as away.
type store struct {
	identity
	wakeup
	view     *view
	sessions *sessions // what restore offers

	away        atomic.Bool  // the store is away: no calls on the request path until a tick succeeds
	failing     atomic.Int64 // mono of the first of the calls that failed in a row; 0: none
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

// wakeup wakes the loop that ticks the room.
type wakeup struct {
	wakeups  chan struct{}
	resting  atomic.Bool   // the loop pauses for longer than a tick
	activity atomic.Uint64 // calls of wakeIdle
}

// lowered is the longest of a duration that was lowered, while it still counts: a store that loses its data has to be told.
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

// left returns it and for how long it holds on; 0: today's is the longest.
func (w *lowered) left(now int64) (longest, left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.longest, max(0, time.Duration(w.till-now))
}

// knowledge is what this process last heard of the store.
type knowledge struct {
	epoch   string
	seq     int64
	fence   int64
	gaps    string // the store's silences, as its scripts write them, of the newest snapshot
	jumps   string // likewise, those that answers have shown since
	jumped  int64  // order time of the last of these
	reset   int64  // order time of the last reset
	revokes int64  // of the snapshot whose revocations are all known
	cursor  int64  // revoked sessions are known up to here
	since   int64  // and admissions up to here, both room time
}

// wake makes the loop look at the room now.
func (r *wakeup) wake() {
	select {
	case r.wakeups <- struct{}{}:
	default:
	}
}

// wakeIdle wakes the loop where the room is idle: a busy room is looked at once a tick, however many join it.
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

// header is how every room script's answer begins.
type header struct {
	epoch      string
	seq, fence int64
	time, wall int64 // order time and Redis's clock
}

// epochError means that the store is not the one that this process knew: the room
// must be restored before anything else.
type epochError struct{ known string }

func (epochError) Error() string { return "the store has another epoch" }

// call runs one room script and returns what follows the header.
func (r *store) call(ctx context.Context, name string, args ...any) (header, []any, error) {
	k := r.knowledge()
	line := make([]any, 0, 4+len(args))
	line = append(line, r.c.now(), k.epoch, k.seq, r.view.policyArg())
	line = append(line, args...)
	sent := r.c.mono()
	reply, err := r.c.scripts.Run(ctx, name, r.keys, line...)
	if err != nil {
		return header{}, nil, err
	}
	if len(reply) < 3 {
		return header{}, nil, fmt.Errorf("%s answered %v", name, reply)
	}
	if asString(reply[0]) == replyEpoch {
		return header{}, nil, epochError{k.epoch}
	}
	h := header{epoch: asString(reply[1]), seq: asInt(reply[2]), fence: asInt(reply[3]), time: asInt(reply[4]), wall: asInt(reply[5])}
	r.learn(h, sent, r.c.mono())
	return h, reply[6:], nil
}

// do is call with a deadline, restoring the room and repeating the call once
// when the store is another than this process knew. Every script is safe to repeat.
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
		return nil, ErrStore // the loop finds out when it is back
	}
	h, rest, err := r.do(ctx, r.c.o.Timeout, script, args...)
	if err != nil {
		if errors.Is(err, ErrStore) && !redis.IsOOMError(err) {
			r.failed(err) // a full store refuses newcomers, but serves those who wait
		}
		return nil, err
	}
	return replies(h, rest, n)
}

// learn takes in what an answer says of epoch, seq and clocks.
func (r *store) learn(h header, sent, heard int64) {
	r.mu.Lock()
	if r.known.epoch == h.epoch {
		r.known.seq = max(r.known.seq, h.seq)
		r.known.fence = max(r.known.fence, h.fence)
	}
	r.mu.Unlock()
	r.failing.Store(0)
	r.moor(h, sent, heard)
}

// moor is sync that remembers a silence of the store: the store may lose its record before a snapshot shows it.
func (r *store) moor(h header, sent, heard int64) {
	if jump := r.view.sync(h, sent, heard); jump > 0 {
		r.mu.Lock()
		r.known.jumps += " " + itoa(h.time) + ":" + itoa(jump)
		r.known.jumped = h.time
		r.mu.Unlock()
	}
}

// failed notes a call that the store did not answer. When none was answered
// for a whole deadline since the first of them, the breaker opens: the room
// serves by on_store_error until a tick succeeds. A single late answer is not an outage, but for a
// store that was never heard.
func (r *store) failed(err error) {
	now := max(1, r.c.mono())
	if r.failing.CompareAndSwap(0, now) && r.view.anchor.Load() != nil {
		return
	}
	if r.view.anchor.Load() == nil || now-r.failing.Load() >= int64(r.c.o.Timeout) {
		r.goAway(err)
	}
}

func (r *store) goAway(err error) {
	if r.away.Load() {
		return
	}
	r.local.begin(r.c.mono()) // first: whoever sees down asks it
	if r.away.CompareAndSwap(false, true) {
		r.wake() // an idle room would be late to find the store back
		r.c.o.Log.Error("store unavailable", "room", r.id, "on_store_error", r.view.Snapshot().Policy.OnStoreError, "error", err)
	}
}

func (r *store) comeUp() {
	if r.away.CompareAndSwap(true, false) {
		r.c.o.Log.Info("store is back", "room", r.id)
	}
}

// stood is Now, but stands still while the store is away: nobody grows older in the store meanwhile.
func (r *store) stood() int64 {
	if a := r.view.anchor.Load(); a != nil && r.away.Load() {
		return a.time
	}
	return r.view.Now()
}

// reached returns the order time up to which this gateway has given orders.
func (r *store) reached() int64 { return max(r.view.Now(), r.view.lastOrd.Load()) }
