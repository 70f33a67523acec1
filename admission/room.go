package admission

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission/policy"
)

// Room is one line. All methods may be called from any goroutine.
type Room struct {
	c    *Core
	id   string
	keys []string

	config  atomic.Pointer[policy.Schedule]
	window  lowered // the claim window
	passes  lowered // the life of a pass
	snap    atomic.Pointer[Snapshot]
	anchor  atomic.Pointer[anchor]
	long    atomic.Pointer[Snapshot] // the one since which the store found the front full
	down    atomic.Bool
	failing atomic.Int64 // mono of the first of the calls that failed in a row; 0: none
	beyond  atomic.Pointer[beyond]
	arrived arrivals

	signedFrom, signedLast atomic.Int64 // orders: since when places are signed, without a pause, and the last

	lastOrd atomic.Int64

	enter *batcher[enterQ, reply]
	near  *batcher[seenQ, reply]  // at the front: a client waits for each
	far   *batcher[seenQ, reply]  // renewals from farther back
	calm  *batcher[enterQ, reply] // and from those who gather
	claim *batcher[claimQ, reply]
	gone  *batcher[leaveQ, bool]

	entering sync.Mutex // a room_enter is under way

	kick     chan struct{} // wakes the loop
	resting  atomic.Bool   // the loop pauses for longer than a tick
	stirred  atomic.Uint64 // calls of wakeIdle
	first    chan struct{} // closed when the first tick has ended, well or not
	looked   sync.Once     // closes first
	memory   memory
	sess     sessions
	ticked   int64        // mono of the last tick; of whoever holds ticking
	answered atomic.Int64 // order time at which the store answered last, without telling its own
	local    local        // what this gateway does without the store
	signed   signed       // and the places that it gave meanwhile
	steers   steering
	sieve    sieve // of joins

	lease lease         // of the origin's budget
	look  time.Duration // between the last tick and the next, as the loop has it; of whoever holds ticking

	lot          atomic.Pointer[lot]
	otherOpening int64       // of a lottery, later than the file's, that was logged
	lined        atomic.Bool // somebody began to wait in this second

	mu       sync.Mutex
	known    knowledge
	flow     []Flow
	restores chan struct{} // holds one while a restore runs
	offer    *offer        // what is left of it; restores holds one
	ticking  sync.Mutex    // one tick at a time, so that snapshots are adopted in order
	stopLoop context.CancelFunc
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

// anchor ties this process's clock to the store's two.
type anchor struct {
	time, wall int64
	mono       int64 // half-way between the call and its answer
	heard      int64 // mono of the answer: the clocks were read before
	own        int64 // this machine's clock then, µs
	step       step
}

// former is the last snapshot before an epoch change.
type former struct {
	snap  *Snapshot
	until int64 // mono
	base  int64 // admissions of the new epoch when it began
}

func newRoom(c *Core, id string, p Policy) *Room {
	r := &Room{
		c:        c,
		id:       id,
		keys:     roomKeys(c.o.Prefix, id),
		kick:     make(chan struct{}, 1),
		first:    make(chan struct{}),
		restores: make(chan struct{}, 1),
	}
	r.memory.init()
	r.sess.init()
	r.enter = &batcher[enterQ, reply]{wait: time.Millisecond, send: r.sendEnter}
	r.near = &batcher[seenQ, reply]{wait: time.Millisecond, send: r.sendSeen}
	r.far = &batcher[seenQ, reply]{wait: 8 * time.Millisecond, send: r.sendSeen}
	r.calm = &batcher[enterQ, reply]{wait: 8 * time.Millisecond, send: r.sendEnter}
	r.claim = &batcher[claimQ, reply]{wait: time.Millisecond, send: r.sendClaim}
	r.gone = &batcher[leaveQ, bool]{wait: time.Millisecond, send: r.sendLeave}
	r.setPolicy(p)
	r.snap.Store(&Snapshot{Policy: p.At(r.RedisNow()), Configured: r.config.Load().At(r.RedisNow())})
	r.beyond.Store(&beyond{snap: r.Snapshot()})
	return r
}

// ID is the room's.
func (r *Room) ID() string { return r.id }

func (r *Room) setPolicy(p Policy) {
	if was := r.config.Swap(policy.NewSchedule(p)); was != nil {
		r.window.changed(was.Policy.ClaimWindow, p.ClaimWindow, r.c.mono())
	}
	r.wake()
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

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (r *Room) policyArg() string { return r.config.Load().At(r.RedisNow()).Arg }

func (r *Room) setStop(stop context.CancelFunc) {
	r.mu.Lock()
	r.stopLoop = stop
	r.mu.Unlock()
}

func (r *Room) stop() {
	r.mu.Lock()
	stop := r.stopLoop
	r.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// wake makes the loop look at the room now.
func (r *Room) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// wakeIdle wakes the loop where the room is idle: a busy room is looked at once a tick, however many join it.
func (r *Room) wakeIdle() {
	r.stirred.Add(1)
	if r.resting.Load() {
		r.wake()
	}
}

// Snapshot is the newest one; never nil.
func (r *Room) Snapshot() *Snapshot { return r.snap.Load() }

// Age is how long ago the snapshot was built, seen from here.
func (r *Room) Age() time.Duration {
	s := r.snap.Load()
	if !s.Known {
		return time.Duration(r.c.mono())
	}
	return time.Duration(r.c.mono() - s.ReadAt)
}

// Now returns order time in microseconds, estimated from the last answer of the store. It runs on while the store is
// away, and is 0 before the first answer.
func (r *Room) Now() int64 {
	a := r.anchor.Load()
	if a == nil {
		return 0
	}
	return a.time + (r.c.mono()-a.mono)/1000
}

// stood is Now, but stands still while the store is away: nobody grows older in the store meanwhile.
func (r *Room) stood() int64 {
	if a := r.anchor.Load(); a != nil && r.down.Load() {
		return a.time
	}
	return r.Now()
}

// reached returns the order time up to which this gateway has given orders.
func (r *Room) reached() int64 { return max(r.Now(), r.lastOrd.Load()) }

// orderLead returns how far order time is ahead of Redis's clock.
func (r *Room) orderLead() int64 {
	if a := r.anchor.Load(); a != nil {
		return a.time - a.wall
	}
	return 0
}

// RedisNow is Redis's clock in microseconds, estimated likewise; tokens' iat
// and exp are seconds of it. It is this machine's own clock until the store was heard.
func (r *Room) RedisNow() int64 {
	if r.c.o.Now != nil {
		return r.c.o.Now()
	}
	a := r.anchor.Load()
	if a == nil {
		return time.Now().UnixMicro()
	}
	return a.wall + (r.c.mono()-a.mono)/1000
}

func (r *Room) knowledge() knowledge {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// learn takes in what an answer says of epoch, seq and clocks.
func (r *Room) learn(h header, sent, heard int64) {
	r.mu.Lock()
	if r.known.epoch == h.epoch {
		r.known.seq = max(r.known.seq, h.seq)
		r.known.fence = max(r.known.fence, h.fence)
	}
	r.mu.Unlock()
	r.failing.Store(0)
	r.moor(h, sent, heard)
}

// storeGap is GAP of lua/lib/room.lua: by as much Redis's clock has to jump, µs, to count as a silence.
const storeGap = 5_000_000

// began is by how much order time falls at least when an empty room begins it anew.
const began = 30_000_000

// moor ties this process's clock to the store's, by an answer.
func (r *Room) moor(h header, sent, heard int64) {
	mono := (sent + heard) / 2
	old := r.anchor.Load()
	if old != nil && mono < old.mono && r.c.o.Now == nil { // an answer that was overtaken
		return
	}
	if old == nil || h.time < old.time-began {
		r.lastOrd.Store(0) // orders until now were of another clock
	}
	next := &anchor{time: h.time, wall: h.wall, mono: mono, heard: heard, own: r.c.ownWall()}
	if old != nil {
		next.step = old.stepTo(next)
	}
	r.anchor.Store(next)
	if old == nil {
		return
	}
	if jump := h.time - old.time - (mono-old.mono)/1000; jump > storeGap {
		// The store has noted a silence. Should it be lost before a snapshot shows that, this gateway has to know.
		r.mu.Lock()
		r.known.jumps += " " + itoa(h.time) + ":" + itoa(jump)
		r.known.jumped = h.time
		r.mu.Unlock()
	}
}

// nextOrder is the order of somebody who joins now: orders of one process ascend. They are order time with the store or
// without it; a gateway that never had an answer of the store has its machine's clock alone.
func (r *Room) nextOrder() int64 {
	if r.anchor.Load() == nil {
		return r.ascend(r.RedisNow())
	}
	return r.ascend(r.Now())
}

func (r *Room) ascend(to int64) int64 {
	for {
		last := r.lastOrd.Load()
		next := max(to, last+1)
		if r.lastOrd.CompareAndSwap(last, next) {
			return next
		}
	}
}

// failed notes a call that the store did not answer. When none was answered
// for a whole deadline since the first of them, the breaker opens: the room
// serves by on_store_error until a tick succeeds. A single late answer is not an outage, but for a
// store that was never heard.
func (r *Room) failed(err error) {
	now := max(1, r.c.mono())
	if r.failing.CompareAndSwap(0, now) && r.anchor.Load() != nil {
		return
	}
	if r.anchor.Load() == nil || now-r.failing.Load() >= int64(r.c.o.Timeout) {
		r.goDown(err)
	}
}

func (r *Room) goDown(err error) {
	if r.down.Load() {
		return
	}
	r.local.begin(r.c.mono()) // first: whoever sees down asks it
	if r.down.CompareAndSwap(false, true) {
		r.wake() // an idle room would be late to find the store back
		r.c.o.Log.Error("store unavailable", "room", r.id, "on_store_error", r.Snapshot().Policy.OnStoreError, "error", err)
	}
}

func (r *Room) goUp() {
	if r.down.CompareAndSwap(true, false) {
		r.c.o.Log.Info("store is back", "room", r.id)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
