package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Gateway is what a gateway reports of itself to the others, every second.
type Gateway struct {
	ID            string         `json:"-"` // Options.Gateway
	At            int64          `json:"-"` // of the report, µs of Redis's clock
	Host          string         `json:"host,omitempty"`
	Version       string         `json:"version"`
	Started       int64          `json:"started"` // µs
	Configuration Configuration  `json:"configuration"`
	Keys          string         `json:"keys"`                // fingerprint of the signing keys
	Offset        int64          `json:"offset"`              // of the machine's clock to Redis's, µs
	StoreAge      int64          `json:"store_age,omitempty"` // age of the oldest snapshot, µs; 0: there is none
	LastError     *LastError     `json:"last_error,omitempty"`
	Conflicts     []string       `json:"conflicts,omitempty"` // rooms whose lottery another gateway draws by another secret
	InFlight      map[string]int `json:"in_flight,omitempty"` // requests by origin
}

// Configuration identifies the configuration of a gateway.
type Configuration struct {
	Generation int    `json:"generation"` // 1 at the start, and one more with each reload
	Hash       string `json:"hash"`
	Loaded     int64  `json:"loaded"` // µs
}

// LastError is the last line of the log at the level error.
type LastError struct {
	At   int64  `json:"at"` // µs
	Text string `json:"text"`
}

// Fleet exchanges the reports of the gateways over a store.
type Fleet struct {
	c        *Core
	describe func() Gateway // ID, At, Offset, StoreAge and Conflicts are filled in

	mu     sync.Mutex
	offset int64
	all    []Gateway
	at     int64 // when all was read, µs of Redis's clock
}

// NewFleet returns a Fleet. describe returns what this gateway reports.
func NewFleet(c *Core, describe func() Gateway) *Fleet { return &Fleet{c: c, describe: describe} }

// Run reports every second until ctx ends, and then that this gateway has gone.
func (f *Fleet) Run(ctx context.Context) error {
	failed := func(err error) { f.c.o.Log.Error("cannot report to the other gateways", "error", err) }
	if err := f.Report(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, ErrStore) {
		failed(err)
	}
	eachSecond(ctx, f.Report, failed)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.c.tickTimeout())
	defer cancel()
	if f.c.Up() {
		if err := f.exchange(last, nil); err != nil && !errors.Is(err, ErrStore) {
			failed(err)
		}
	}
	return nil
}

// Report reports once and reads the reports of all gateways. Run calls it; tests may.
func (f *Fleet) Report(ctx context.Context) error {
	g := f.describe()
	f.mu.Lock()
	g.Offset = f.offset
	f.mu.Unlock()
	for _, r := range f.c.all() {
		if r.Snapshot().Known {
			g.StoreAge = max(g.StoreAge, r.Age().Microseconds())
		}
		if r.DrawsApart() {
			g.Conflicts = append(g.Conflicts, r.ID())
		}
	}
	text, err := json.Marshal(g)
	if err != nil {
		return err
	}
	return f.exchange(ctx, text)
}

// exchange sends this gateway's report, nil to remove it.
func (f *Fleet) exchange(ctx context.Context, text []byte) error {
	if err := f.c.prepare(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.c.tickTimeout())
	defer cancel()
	sent := f.c.ownWall()
	v, err := f.c.scripts.Run(ctx, "fleet_report", []string{fleetKey(f.c.o.Prefix)}, f.c.now(), f.c.o.Gateway, text)
	if err != nil {
		return err
	}
	replied := f.c.ownWall()
	if len(v)%3 != 2 || v.String(0) != replyOK {
		return fmt.Errorf("fleet_report replied %v", v)
	}
	var all []Gateway
	for i := 2; i < len(v); i += 3 {
		g := Gateway{}
		if err := json.Unmarshal([]byte(v.String(i+2)), &g); err != nil {
			continue // of a version with another form
		}
		g.ID, g.At = v.String(i), v.Int(i+1)
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b Gateway) int { return cmp.Compare(a.ID, b.ID) })
	f.mu.Lock()
	f.offset, f.all, f.at = sent+(replied-sent)/2-v.Int(1), all, v.Int(1)
	f.mu.Unlock()
	return nil
}

// Gateways returns the gateways of the last minute, by id, and when they were read, in µs of Redis's clock; 0: never. The slice must not be
// changed.
func (f *Fleet) Gateways() (all []Gateway, at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all, f.at
}

// Self returns the id of this gateway.
func (f *Fleet) Self() string { return f.c.o.Gateway }

// InFlight returns the requests to an origin of all gateways that reported in the last seconds; false without a report.
func (f *Fleet) InFlight(origin string) (n int64, known bool) {
	all, at := f.Gateways()
	for i := range all {
		if time.Duration(at-all[i].At)*time.Microsecond <= healthAge {
			n, known = n+int64(all[i].InFlight[origin]), true
		}
	}
	return n, known
}
