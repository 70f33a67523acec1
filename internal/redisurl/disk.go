package redisurl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// CheckDisk checks that every master can confirm that a write is on its disk, with WAITAOF (Redis 7.2) and an append-only file.
// An error that wraps ErrUnsuitable is final; any other means that the store did not reply.
func CheckDisk(ctx context.Context, client redis.UniversalClient) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return eachMaster(ctx, c, func(ctx context.Context, node *redis.Client) error { return checkDisk(ctx, node) })
	}
	return checkDisk(ctx, client)
}

// doer is implemented by every client.
type doer interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}

func checkDisk(ctx context.Context, node doer) error {
	err := node.Do(ctx, "WAITAOF", 1, 0, 1).Err()
	var said redis.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &said):
		return fmt.Errorf("check WAITAOF of the store: %w", err)
	case strings.Contains(err.Error(), "unknown command"):
		return fmt.Errorf("%w: it has no WAITAOF, which came with Redis 7.2; use a later one, or durability none or replica", ErrUnsuitable)
	}
	return fmt.Errorf("%w: WAITAOF says %w; run the store with appendonly yes, or use durability none or replica", ErrUnsuitable, err)
}
