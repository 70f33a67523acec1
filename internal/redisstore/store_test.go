package redisstore

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/lua"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

var errAway = errors.New("away")

func open(t *testing.T, key string, layout int, prepared func(context.Context) error) *Store {
	t.Helper()
	s, err := New(Options{
		Client: redistest.Client(t), LayoutKey: key, Layout: layout, Prefix: "wr", Data: "data",
		CallTimeout: 10 * time.Second, LoadTimeout: 10 * time.Second, Outage: errAway, Prepared: prepared,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPrepare_ChecksTheLayoutOnce(t *testing.T) {
	key, calls := redistest.Prefix(t)+":layout", 0
	s := open(t, key, 3, func(context.Context) error { calls++; return nil })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := s.Prepare(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := s.Prepare(t.Context()); err != nil || calls != 1 {
		t.Errorf("%v; Prepared was called %d times", err, calls)
	}
	failing := open(t, key, 3, func(context.Context) error { return errAway })
	if err := failing.Prepare(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("Prepared failed, and Prepare returned %v", err)
	}
	err := open(t, key, 4, nil).Prepare(t.Context())
	if !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), "data layout 3, this program knows 4") || !strings.Contains(err.Error(), "store.prefix") {
		t.Errorf("another layout: %v", err)
	}
}

func TestRun_DistinguishesOutagesFromMistakes(t *testing.T) {
	key := redistest.Prefix(t) + ":layout"
	s := open(t, key, 1, nil)
	if r, err := s.Run(t.Context(), "layout_claim", []string{key}, 5, 1); err != nil || r.Int(0) != 1 || r.String(1) != "5" {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := s.Run(t.Context(), "layout_claim", nil, 0, 1); !errors.Is(err, lua.ErrCall) || errors.Is(err, errAway) {
		t.Errorf("a call without its key: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Run(gone, "layout_claim", []string{key}, 0, 1); !errors.Is(err, errAway) || !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was cancelled: %v", err)
	}
}

func TestReply_ConvertsValues(t *testing.T) {
	r := Reply{int64(7), "8", "x", nil, []any{"9"}}
	if r.Int(0) != 7 || r.Int(1) != 8 || r.Int(2) != 0 || r.Int(3) != 0 || r.Int(9) != 0 || r.Int(-1) != 0 {
		t.Error("integers")
	}
	if r.String(0) != "7" || r.String(2) != "x" || r.String(3) != "" || List(r.At(4)).String(0) != "9" || List(r.At(1)) != nil {
		t.Error("strings and lists")
	}
}
