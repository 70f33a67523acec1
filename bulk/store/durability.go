package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redisstore"
)

// confirm waits until replicas, or the disk, have all writes so far. WAIT covers the writes of its own connection, so
// a small write precedes it on the same one: a node that has this write has all before it.
func (s *shard) confirm(ctx context.Context, replicas, local int) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	node, err := s.master(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	patience := max(1, s.o.Timeout.Milliseconds()/2)
	pipe := node.Pipeline()
	pipe.HIncrBy(ctx, s.keys[keyState], "confirmed", 1)
	var asked *redis.Cmd
	if local > 0 {
		asked = pipe.Do(ctx, "WAITAOF", local, replicas, patience)
	} else {
		asked = pipe.Do(ctx, "WAIT", replicas, patience)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%w: durability: %w", ErrStore, err)
	}
	got := asked.Val()
	if two, ok := got.([]any); ok {
		if len(two) != 2 || asInt(two[0]) < int64(local) || asInt(two[1]) < int64(replicas) {
			return fmt.Errorf("%w: durability: confirmed by disk and replicas: %v, want %d and %d within %d ms; the write took place but is not confirmed, send it again", ErrStore, got, local, replicas, patience)
		}
		return nil
	}
	if asInt(got) < int64(replicas) {
		return fmt.Errorf("%w: durability: %d of %d replicas confirmed within %d ms; the write took place but is not confirmed, send it again", ErrStore, asInt(got), replicas, patience)
	}
	return nil
}

// master returns the node that holds the shard.
func (s *shard) master(ctx context.Context) (redisstore.Client, error) {
	switch c := s.o.Client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, s.keys[keyState])
	}
	return nil, fmt.Errorf("a client of type %T has no single master", s.o.Client)
}
