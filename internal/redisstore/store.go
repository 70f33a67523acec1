// Package redisstore runs the scripts of package lua: it checks the layout of the data before the first call, separates outages
// from mistakes in a call, and reads replies.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/anteroom/anteroom/lua"
)

// ErrLayout is returned when the store holds data in a layout that this program does not know.
var ErrLayout = errors.New("the store has another data layout")

// Client is a client of a server, a cluster or Sentinels.
type Client = lua.Client

// Options of a Store. All but Observe and Prepared are required.
type Options struct {
	Client Client
	// LayoutKey holds the version of the layout of the data; Layout is the version that the program reads and writes.
	LayoutKey string
	Layout    int
	Prefix    string // of the keys, as errors name it
	Data      string // what has that layout, as errors name it
	// CallTimeout is the deadline of the layout check, LoadTimeout that of loading all scripts, a round trip each.
	CallTimeout, LoadTimeout time.Duration
	// Outage is wrapped by the errors of calls that the store did not confirm.
	Outage error
	// Observe is called after every call of a script.
	Observe func(script string, took time.Duration, err error)
	// Prepared is called once, when the layout was checked and the scripts are loaded; Prepare returns its error.
	Prepared func(ctx context.Context) error
}

// Store runs scripts. Its methods are safe for concurrent use.
type Store struct {
	o       Options
	scripts *lua.Set
	runner  *lua.Runner
	ready   atomic.Bool
	flight  singleflight.Group
}

// New reads the scripts and starts nothing.
func New(o Options) (*Store, error) {
	set, err := lua.Load()
	if err != nil {
		return nil, err
	}
	return &Store{o: o, scripts: set, runner: lua.NewRunner(o.Client, set, o.Observe)}, nil
}

// Script returns the script of that name; it panics if there is none.
func (s *Store) Script(name string) *lua.Script { return s.scripts.Script(name) }

// Prepare checks the layout of the data and loads the scripts, once. Concurrent calls share one attempt, and no lock is held
// meanwhile. An error that wraps ErrLayout is final.
func (s *Store) Prepare(ctx context.Context) error {
	if s.ready.Load() {
		return nil
	}
	_, err, _ := s.flight.Do("", func() (any, error) { return nil, s.prepare(ctx) })
	return err
}

func (s *Store) prepare(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, s.o.CallTimeout)
	defer cancel()
	r, err := s.Run(call, "layout_claim", []string{s.o.LayoutKey}, 0, s.o.Layout)
	if err != nil {
		return err
	}
	if found := r.Int(0); found != int64(s.o.Layout) {
		return fmt.Errorf("%w: keys with prefix %q have %s layout %d, this program knows %d: run the version that wrote them, or set store.prefix to another value", ErrLayout, s.o.Prefix, s.o.Data, found, s.o.Layout)
	}
	load, cancelLoad := context.WithTimeout(ctx, s.o.LoadTimeout)
	defer cancelLoad()
	if err := s.runner.LoadAll(load); err != nil {
		return fmt.Errorf("%w: %w", s.o.Outage, err)
	}
	s.ready.Store(true)
	if s.o.Prepared != nil {
		return s.o.Prepared(load)
	}
	return nil
}

// Run runs a script. It does not call Prepare, and leaves deadlines to the caller. Every error but lua.ErrCall wraps
// Options.Outage; the script may then have run.
func (s *Store) Run(ctx context.Context, script string, keys []string, args ...any) (Reply, error) {
	res, err := s.runner.Run(ctx, s.scripts.Script(script), keys, args...)
	switch {
	case errors.Is(err, lua.ErrCall):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", s.o.Outage, err)
	}
	switch r := res.(type) {
	case []any:
		return r, nil
	case nil:
		return nil, nil
	}
	return Reply{res}, nil
}
