package store

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// afterCommand calls do after each command of a client that is not in a pipeline.
type afterCommand func()

func (afterCommand) DialHook(next redis.DialHook) redis.DialHook { return next }

func (afterCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (do afterCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, c redis.Cmder) error {
		err := next(ctx, c)
		do()
		return err
	}
}

// A lock that expires while its owner releases it, and that another process takes, stays with the other process.
func TestStore_LockOfAnotherSurvivesUnlock(t *testing.T) {
	server := redistest.Server(t)
	client, other := server.Client(), server.Client()
	s, err := New(Options{Client: client, Prefix: "wr", Timeout: 5 * time.Second, Settings: Defaults()})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, the lock is free again
		unlock, ok, err := s.Lock(t.Context(), "g", time.Minute)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		unlock()
	}
	unlock, ok, err := s.Lock(t.Context(), "g", time.Minute)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	key, taken := lockKey("wr", 0, "g"), false
	client.AddHook(afterCommand(func() {
		if !taken {
			taken = true
			other.Set(t.Context(), key, "other", time.Minute)
		}
	}))
	unlock()
	if owner := other.Get(t.Context(), key).Val(); !taken || owner != "other" {
		t.Errorf("taken %v; the lock is of %q", taken, owner)
	}
}
