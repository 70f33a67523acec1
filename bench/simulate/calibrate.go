package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/bench/store"
)

// kit is what a calibration of the store works with: a redis-server and rooms of the real core, without a gateway.
type kit struct {
	redis *store.Server
	base  float64
	rooms int
}

// policy of the rooms that are measured: nobody is let in unless a room says so, and nobody becomes absent.
func policy() admission.Policy {
	return admission.Policy{
		Enabled: true, Method: admission.FIFO, Rate: 1, Burst: 1, Absence: time.Hour, ClaimWindow: time.Hour, SessionTTL: time.Hour,
		OnStoreError: admission.OnErrorWait,
	}
}

func newKit(ctx context.Context, dir string) (*kit, error) {
	r, err := store.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	k := &kit{redis: r}
	// The scripts and the layout belong to an empty store.
	if _, err := k.room(ctx, policy()); err != nil {
		r.Stop()
		return nil, err
	}
	st, err := r.Stats(ctx)
	k.base = float64(st.Memory - st.Clients)
	return k, err
}

// room is a new one, looked at once.
func (k *kit) room(ctx context.Context, p admission.Policy) (*admission.Room, error) {
	k.rooms++
	return k.again(ctx, fmt.Sprint("room", k.rooms), p)
}

// again is a room as another gateway sees it, which remembers nothing of it.
func (k *kit) again(ctx context.Context, id string, p admission.Policy) (*admission.Room, error) {
	core, err := admission.New(admission.Options{Client: k.redis.Client, Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	r := core.Room(id, p)
	return r, r.Tick(ctx)
}

// work is what Redis does meanwhile.
func (k *kit) work(ctx context.Context, f func() error) (Cost, float64, error) {
	before, err := k.redis.Stats(ctx)
	if err != nil {
		return Cost{}, 0, err
	}
	own := ownCPU()
	if err := f(); err != nil {
		return Cost{}, 0, err
	}
	own = ownCPU() - own
	after, err := k.redis.Stats(ctx)
	if err != nil {
		return Cost{}, 0, err
	}
	d := after.Since(before)
	// INFO itself is one command, of some 7 KB.
	return Cost{
		CPU: float64(d.CPU.Microseconds()), Caller: float64(own.Microseconds()), Commands: float64(d.Commands - 1),
		In: float64(d.In), Out: max(0, float64(d.Out)-infoBytes),
	}, float64(d.Calls), nil
}

const infoBytes = 8_000

// script finds what a call and what an item of it cost: n requests one after the other, each in a call of its own, then
// many more at once, which share calls.
func (k *kit) script(ctx context.Context, one, many []func() error) (Script, error) {
	a, aCalls, err := k.work(ctx, func() error { return sequence(one) })
	if err != nil {
		return Script{}, err
	}
	b, bCalls, err := k.work(ctx, func() error { return together(many) })
	if err != nil {
		return Script{}, err
	}
	return split(a, aCalls, float64(len(one)), b, bCalls, float64(len(many))), nil
}

// split solves two runs for the cost of a call and of an item: cost = calls × call + items × item. What would be negative
// by chance is nothing.
func split(a Cost, aCalls, aItems float64, b Cost, bCalls, bItems float64) Script {
	solve := func(x, y float64) (call, item float64) {
		det := aCalls*bItems - bCalls*aItems
		if det == 0 {
			return 0, x / max(aItems, 1)
		}
		call, item = (x*bItems-y*aItems)/det, (aCalls*y-bCalls*x)/det
		switch {
		case call < 0:
			return 0, y / bItems
		case item < 0:
			return x / aCalls, 0
		}
		return call, item
	}
	var s Script
	s.Call.CPU, s.Item.CPU = solve(a.CPU, b.CPU)
	s.Call.Caller, s.Item.Caller = solve(a.Caller, b.Caller)
	s.Call.Commands, s.Item.Commands = solve(a.Commands, b.Commands)
	s.Call.In, s.Item.In = solve(a.In, b.In)
	s.Call.Out, s.Item.Out = solve(a.Out, b.Out)
	return s
}

func sequence(all []func() error) error {
	for _, f := range all {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// askers is how many ask at once: enough to fill a batch and the next one while it is under way.
const askers = 1000

func together(all []func() error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range askers {
		wg.Go(func() {
			for failed.Load() == nil {
				i := next.Add(1) - 1
				if i >= int64(len(all)) {
					return
				}
				if err := all[i](); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// sizes measures lines of these lengths, one after the other in the same room as it grows.
func (k *kit) sizes(ctx context.Context, lengths []int) (all []Size, err error) {
	room, err := k.room(ctx, policy())
	if err != nil {
		return nil, err
	}
	id := room.ID()
	var tickets []admission.Ticket
	began := room.Now() - time.Minute.Microseconds()
	enrol := func(n int) []func() error {
		fs := make([]func() error, n)
		for i := range fs {
			t := admission.Ticket{ID: randomID(), Order: began + int64(len(tickets)), Fence: room.Snapshot().Fence, Interval: time.Minute}
			tickets = append(tickets, t)
			fs[i] = func() error { return waits(room.Check(ctx, t)) }
		}
		return fs
	}
	for _, n := range lengths {
		s := Size{Waiting: float64(n)}
		const single = 200
		sample := min(20_000, n/2)
		if rest := n - sample - single - len(tickets); rest > 0 {
			if err := together(enrol(rest)); err != nil {
				return nil, err
			}
		}
		if s.Enrol, err = k.script(ctx, enrol(single), enrol(sample)); err != nil {
			return nil, err
		}
		// The sketch of a line that appears at once takes some ticks.
		for range 20 {
			if err := k.due(ctx, room); err != nil {
				return nil, err
			}
		}
		st, err := k.redis.Stats(ctx)
		if err != nil {
			return nil, err
		}
		s.Bytes = (float64(st.Memory-st.Clients) - k.base) / float64(len(tickets))
		other, err := k.again(ctx, id, policy())
		if err != nil {
			return nil, err
		}
		if s.Seen, err = k.seen(ctx, other, tickets, single, sample); err != nil {
			return nil, err
		}
		if err := k.ticks(ctx, room, other, &s); err != nil {
			return nil, err
		}
		say("%9d waiting: %.0f bytes each; Redis µs: seen %.1f a call + %.2f each, enrol %.1f + %.2f, tick %.0f, read %.0f; the gateway's: seen %.1f + %.2f, tick %.0f",
			n, s.Bytes, s.Seen.Call.CPU, s.Seen.Item.CPU, s.Enrol.Call.CPU, s.Enrol.Item.CPU, s.Tick.CPU, s.Read.CPU, s.Seen.Call.Caller, s.Seen.Item.Caller, s.Tick.Caller)
		all = append(all, s)
	}
	return all, nil
}

// due waits until a tick is due, and makes it.
func (k *kit) due(ctx context.Context, r *admission.Room) error {
	select {
	case <-time.After(180 * time.Millisecond):
		return r.Tick(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// seen asks about tickets that are spread over the whole line and whose confirmation has become old.
func (k *kit) seen(ctx context.Context, r *admission.Room, tickets []admission.Ticket, single, sample int) (Script, error) {
	ask := func(n, from int) []func() error {
		fs := make([]func() error, n)
		for i := range fs {
			t := tickets[(from+i*(len(tickets)-from)/n)%len(tickets)]
			t.Epoch, t.Seen = r.Snapshot().Epoch, r.Now()-time.Hour.Microseconds()/2
			fs[i] = func() error { return waits(r.Check(ctx, t)) }
		}
		return fs
	}
	return k.script(ctx, ask(single, 0), ask(sample, 1))
}

// ticks measures ticks that are done, and ones that find that another gateway was first.
func (k *kit) ticks(ctx context.Context, r, other *admission.Room, s *Size) error {
	const n = 12
	var own, read Cost
	for range n {
		cost, _, err := k.work(ctx, func() error {
			select {
			case <-time.After(180 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
			return r.Tick(ctx)
		})
		if err != nil {
			return err
		}
		own = own.plus(cost, 1.0/n)
		if cost, _, err = k.work(ctx, func() error { return other.Tick(ctx) }); err != nil {
			return err
		}
		read = read.plus(cost, 1.0/n)
	}
	s.Tick, s.Read = own, read
	return nil
}

// letIn measures admissions, claims and heartbeats, and what those who were let in leave behind.
func (k *kit) letIn(ctx context.Context, c *Calibration) error {
	const people, single = 4000, 200
	p := policy()
	p.Rate = 0
	r, err := k.room(ctx, p)
	if err != nil {
		return err
	}
	tickets := make([]admission.Ticket, people)
	began := r.Now() - time.Minute.Microseconds()
	fs := make([]func() error, people)
	for i := range tickets {
		tickets[i] = admission.Ticket{ID: randomID(), Order: began + int64(i), Fence: r.Snapshot().Fence, Interval: time.Minute}
		fs[i] = func() error { return waits(r.Check(ctx, tickets[i])) }
	}
	before, err := k.redis.Stats(ctx)
	if err != nil {
		return err
	}
	if err := together(fs); err != nil {
		return err
	}
	p.Rate, p.Burst = 100_000_000, 2*people*1000
	if r, err = k.again(ctx, r.ID(), p); err != nil { // its first tick begins to fill the bucket
		return err
	}
	let, _, err := k.work(ctx, func() error {
		for { // the snapshot that it holds may be older than the line
			if err := k.due(ctx, r); err != nil || r.Snapshot().Waiting == 0 {
				return err
			}
		}
	})
	if err != nil {
		return err
	}
	c.Admission = Cost{}.plus(let, 1.0/people)
	for i := range fs {
		fs[i] = func() error {
			s, err := r.Claim(ctx, tickets[i])
			if err == nil && s.State != admission.Active {
				err = fmt.Errorf("a claim found its ticket in state %d (%s)", s.State, s.Reason)
			}
			return err
		}
	}
	if c.Claim, err = k.script(ctx, fs[:single], fs[single:]); err != nil {
		return err
	}
	after, err := k.redis.Stats(ctx)
	if err != nil {
		return err
	}
	c.Gone = float64(after.Memory-after.Clients-before.Memory+before.Clients) / people
	beat := func(tickets []admission.Ticket) (Cost, float64, error) {
		for _, t := range tickets {
			r.Touch(t.ID, false)
		}
		return k.work(ctx, func() error { return k.due(ctx, r) })
	}
	few, _, err := beat(tickets[:1])
	if err != nil {
		return err
	}
	many, _, err := beat(tickets)
	if err != nil {
		return err
	}
	none, _, err := beat(nil)
	if err != nil {
		return err
	}
	few, many = few.plus(none, -1), many.plus(none, -1)
	c.Beat = split(few, 1, 1, many, people/batchMost, people)
	say("let in: Redis µs: admission %.2f, claim %.1f a call + %.2f each, heartbeat %.1f + %.2f; %.0f bytes each",
		c.Admission.CPU, c.Claim.Call.CPU, c.Claim.Item.CPU, c.Beat.Call.CPU, c.Beat.Item.CPU, c.Gone)
	return nil
}

func waits(s admission.Standing, err error) error {
	if err == nil && (s.State != admission.Waiting || s.Offline) {
		err = fmt.Errorf("a ticket that should wait is in state %d (%s)", s.State, s.Reason)
	}
	return err
}

func randomID() (id admission.ID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

func machine() string {
	return fmt.Sprintf("%s/%s, %d cores, %s, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly), loadAverage())
}
