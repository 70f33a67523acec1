package admission

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anteroom/anteroom/internal/redisstore"
)

// layout is the version of the keys and values that this program reads and writes; it refuses a store with another.
const layout = 4

// Options of a Core. Client is required.
type Options struct {
	Client  redisstore.Client
	Prefix  string        // of every key; "wr"
	Timeout time.Duration // deadline of a call on the request path; 250ms
	Tick    time.Duration // between two ticks of a busy room; 250ms
	Log     *slog.Logger
	Gateway string // names this process among its peers; random when empty
	// Observe is called after every store call, for metrics.
	Observe func(script string, took time.Duration, err error)
	// Now replaces Redis's clock (µs) in tests.
	Now func() int64
}

// Core holds the rooms of one process over one store.
type Core struct {
	o       Options
	scripts *redisstore.Store
	start   time.Time
	ownMono func() int64 // replaces the monotonic clock in tests that set Redis's clock; nil: not replaced
	ownWall func() int64 // this machine's clock, µs

	mu      sync.Mutex
	rooms   map[string]*Room
	origins map[string]*origin
	unread  map[string]bool // origins of which an unreadable report was logged
	waits   chan struct{}   // a visitor began to wait
	running context.Context // nil while Run does not run
	loops   sync.WaitGroup

	uses uses // of origins' budgets

	reader *batcher[string, snapshotRead] // of idle rooms
	phase  time.Duration                  // of these reads, so that gateways take turns
}

// New returns a Core. It starts nothing.
func New(o Options) (*Core, error) {
	if o.Client == nil {
		return nil, errors.New("admission: Options.Client is missing")
	}
	o.Prefix = cmp.Or(o.Prefix, "wr")
	if o.Timeout <= 0 {
		o.Timeout = 250 * time.Millisecond
	}
	if o.Tick <= 0 {
		o.Tick = 250 * time.Millisecond
	}
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Gateway == "" {
		o.Gateway = randomName()
	}
	scripts, err := redisstore.New(redisstore.Options{
		Client: o.Client, LayoutKey: layoutKey(o.Prefix), Layout: layout, Prefix: o.Prefix, Data: "data",
		CallTimeout: o.tickTimeout(), LoadTimeout: max(loadTimeout, o.tickTimeout()), Outage: ErrStore, Observe: o.Observe,
	})
	if err != nil {
		return nil, err
	}
	c := &Core{
		o:       o,
		scripts: scripts,
		start:   time.Now(),
		ownWall: func() int64 { return time.Now().UnixMicro() },
		rooms:   map[string]*Room{},
		origins: map[string]*origin{},
		unread:  map[string]bool{},
		waits:   make(chan struct{}, 1),
		uses:    uses{m: map[string]BudgetUse{}},
		phase:   mathrand.N(idlePause), //nolint:gosec // spreads gateways over time
	}
	c.reader = &batcher[string, snapshotRead]{wait: 5 * time.Millisecond, send: c.readSnapshots}
	return c, nil
}

func randomName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Room returns the room of that id, with the policy as configured now. It creates a room that is new.
func (c *Core) Room(id string, p Policy) *Room {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rooms[id]
	if r == nil {
		r = newRoom(c, id, p)
		c.rooms[id] = r
		if c.running != nil {
			c.launch(r)
		}
		return r
	}
	r.setPolicy(p)
	return r
}

// Remove stops a room in this process. The store keeps its queue.
func (c *Core) Remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.rooms[id]; r != nil && r.ticker.stopLoop != nil {
		r.ticker.stopLoop()
	}
	delete(c.rooms, id)
}

func (c *Core) all() []*Room {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.rooms), func(a, b *Room) int { return strings.Compare(a.id, b.id) })
}

// launch starts a room's loops; c.mu is held.
func (c *Core) launch(r *Room) {
	ctx, stop := context.WithCancel(c.running)
	r.ticker.stopLoop = stop
	c.loops.Go(func() {
		defer stop()
		r.ticker.loop(ctx)
	})
	c.loops.Go(func() { r.steering.steer(ctx) })
	c.loops.Go(func() { r.operators.ramping.run(ctx) })
	c.loops.Go(func() { r.operators.alarms.run(ctx) })
}

// Run ticks the rooms until ctx ends; it then sends what is pending (heartbeats, joins) and returns nil. Only one Run may run at
// a time.
func (c *Core) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.running != nil {
		c.mu.Unlock()
		return errors.New("admission: Run runs already")
	}
	c.running = ctx
	for _, r := range c.rooms {
		c.launch(r)
	}
	c.loops.Go(func() { c.publishLoop(ctx) })
	c.mu.Unlock()
	<-ctx.Done()
	c.mu.Lock()
	c.running = nil
	c.mu.Unlock()
	c.loops.Wait()
	return nil
}

// Settle waits until every room was ticked once since Run began, successfully or not, or until ctx ends. Before its first tick a
// room has no snapshot, so every visitor has to wait.
func (c *Core) Settle(ctx context.Context) {
	for _, r := range c.all() {
		select {
		case <-r.ticker.first:
		case <-ctx.Done():
			return
		}
	}
}

// GatewayOf returns the name of this process among its peers.
func GatewayOf(c *Core) string { return c.o.Gateway }

// Up reports whether no room counts the store as away.
func (c *Core) Up() bool {
	return !slices.ContainsFunc(c.all(), func(r *Room) bool { return r.store.away.Load() })
}

// ErrLayout is returned when the store holds data in a layout that this program does not know.
var ErrLayout = redisstore.ErrLayout

// CheckLayout reports whether this program can use the store: the store's data has the layout that the program knows, or the store
// is empty and is marked with that layout, and scripts may run and write. An error that wraps ErrLayout is final.
func (c *Core) CheckLayout(ctx context.Context) error { return c.scripts.Prepare(ctx) }

// ScriptsOf returns what runs the scripts of data that is kept beside the rooms, such as the queue of events. Its errors wrap ErrStore if the
// store did not reply.
func ScriptsOf(c *Core) *redisstore.Store { return c.scripts }

// prepare is CheckLayout for the loops. They treat an unknown layout as an outage, since an operator may still correct it.
func (c *Core) prepare(ctx context.Context) error {
	err := c.scripts.Prepare(ctx)
	if errors.Is(err, ErrLayout) {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	return err
}

// loadTimeout is the shortest deadline of the loading of all scripts, a round trip each.
const loadTimeout = 5 * time.Second

// tickTimeout is the deadline of the calls off the request path.
func (o *Options) tickTimeout() time.Duration { return max(time.Second, 2*o.Timeout) }

func (c *Core) tickTimeout() time.Duration { return c.o.tickTimeout() }

// mono returns this process's monotonic clock in nanoseconds. In tests it follows Options.Now or is replaced.
func (c *Core) mono() int64 {
	if c.ownMono != nil {
		return c.ownMono()
	}
	if c.o.Now != nil {
		return c.o.Now() * 1000
	}
	return int64(time.Since(c.start))
}

func (c *Core) now() int64 {
	if c.o.Now != nil {
		return c.o.Now()
	}
	return 0
}

func asString(v any) string { return redisstore.String(v) }
func asInt(v any) int64     { return redisstore.Int(v) }
func asList(v any) []any    { return redisstore.List(v) }
