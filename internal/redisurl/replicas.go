package redisurl

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// CheckReplicas checks that every master has a connected replica, without which none can confirm a write. A number that the user's ACL
// hides is assumed to be right. An error that wraps ErrUnsuitable names what is missing; any other means that the store did not reply.
func CheckReplicas(ctx context.Context, client redis.UniversalClient) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return eachMaster(ctx, c, func(ctx context.Context, node *redis.Client) error { return checkReplicas(ctx, node) })
	}
	return checkReplicas(ctx, client)
}

func checkReplicas(ctx context.Context, node redis.Cmdable) error {
	text, err := node.Info(ctx, "replication").Result()
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		return nil
	case err != nil:
		return fmt.Errorf("read the store's replicas: %w", err)
	}
	if n, err := strconv.Atoi(field(text, "connected_slaves")); err == nil && n == 0 {
		return fmt.Errorf("%w: it has no connected replica, so that no submission is confirmed; connect one, or use durability none or disk", ErrUnsuitable)
	}
	return nil
}
