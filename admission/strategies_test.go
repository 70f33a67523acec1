package admission_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	. "github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/admissiontest"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// endless is a room whose queue never ends.
type endless struct {
	t    rapid.TB
	core *Core
	room *Room
	now  int64
	id   uint64
	seen int64
}

var endlessRooms atomic.Int64 // numbers the rooms

func newEndless(t rapid.TB, client redis.UniversalClient, prefix string, s Strategy, rate, burst, now int64) *endless {
	e := &endless{t: t, now: now}
	core, err := New(Options{Client: client, Prefix: fmt.Sprintf("%sx%d", prefix, endlessRooms.Add(1)), Timeout: patience, Log: slog.New(slog.DiscardHandler),
		Now: func() int64 { return e.now }})
	if err != nil {
		t.Fatal(err)
	}
	e.core = core
	e.configure(s, rate, burst)
	if err := e.room.Tick(context.Background()); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *endless) configure(s Strategy, rate, burst int64) {
	e.room = e.core.Room("sale", Policy{Enabled: true, Method: FIFO, Strategy: s, Rate: rate, MinRate: 1, MaxRate: 1_000_000, Burst: burst,
		MinWait: time.Microsecond, Absence: time.Hour, ClaimWindow: time.Hour, SessionTTL: time.Hour, OnStoreError: OnErrorWait})
}

// Admit fills the queue and ticks once. With a min_wait of a microsecond nobody is admitted before the tick.
func (e *endless) Admit(now int64, s Strategy, rate, burst int64) int64 {
	e.configure(s, rate, burst)
	e.now = now - min(10, now-e.now)
	var joins sync.WaitGroup
	for range 20 - e.room.Snapshot().Waiting {
		e.id++
		var id ID
		binary.BigEndian.PutUint64(id[:], e.id)
		joins.Go(func() {
			if _, _, err := e.room.Join(context.Background(), Arrival{ID: id, Interval: time.Minute}); err != nil {
				e.t.Error(err)
			}
		})
	}
	joins.Wait()
	e.now = now
	if err := e.room.Tick(context.Background()); err != nil {
		e.t.Fatal(err)
	}
	n := e.room.Snapshot().Admissions - e.seen
	e.seen += n
	return n
}

// The limiters themselves are tested in package limiter.
func TestRoomStrategies_Conform(t *testing.T) {
	short.Skip(t, "makes many cases")
	t.Parallel()
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	for _, s := range []Strategy{StrategyTokenBucket, StrategyLeakyBucket, StrategyFixedWindow} {
		t.Run(string(s)+"/model", func(t *testing.T) {
			admissiontest.Strategies(t, s, true, func(_ rapid.TB, s Strategy, rate, burst, now int64) admissiontest.Paced {
				return pacedModel{M: newModel(Policy{Strategy: s, Rate: rate, Burst: burst}, now)}
			})
		})
		t.Run(string(s)+"/room", func(t *testing.T) {
			// Changes reach every strategy, whichever the room begins with.
			admissiontest.Strategies(t, s, s == StrategyLeakyBucket, func(t rapid.TB, s Strategy, rate, burst, now int64) admissiontest.Paced {
				return newEndless(t, client, prefix, s, rate, burst, now)
			})
		})
	}
}
