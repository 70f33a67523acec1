package redisurl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// oldest is the first major version whose scripts carry flags (#!lua).
const oldest = 7

// CheckServer checks that every master can be the store: Redis 7 or later, or Valkey, with the maxmemory-policy noeviction. Values
// that the user's ACL hides are assumed to be right. An error that wraps ErrUnsuitable is final; any other means that the store did
// not reply.
func CheckServer(ctx context.Context, client redis.UniversalClient) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return eachMaster(ctx, c, func(ctx context.Context, node *redis.Client) error { return checkNode(ctx, node) })
	}
	return checkNode(ctx, client)
}

// eachMaster joins the errors of all masters: a master that does not reply must not hide that another is unsuitable.
func eachMaster(ctx context.Context, c *redis.ClusterClient, f func(context.Context, *redis.Client) error) error {
	var mu sync.Mutex
	var bad []error
	err := c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		if err := f(ctx, node); err != nil {
			mu.Lock()
			defer mu.Unlock()
			bad = append(bad, fmt.Errorf("node %s: %w", node.Options().Addr, err))
		}
		return nil
	})
	return errors.Join(append(bad, err)...)
}

func checkNode(ctx context.Context, node redis.Cmdable) error {
	version, policy := "", ""
	server, err := node.Info(ctx, "server").Result()
	switch {
	case err == nil:
		version = field(server, "redis_version")
	case !redis.HasErrorPrefix(err, "NOPERM"):
		return fmt.Errorf("read the store's version: %w", err)
	}
	if memory, err := node.Info(ctx, "memory").Result(); err == nil {
		policy = field(memory, "maxmemory_policy")
	} else if !redis.HasErrorPrefix(err, "NOPERM") {
		return fmt.Errorf("read the store's maxmemory-policy: %w", err)
	}
	if policy == "" {
		if config, err := node.ConfigGet(ctx, "maxmemory-policy").Result(); err == nil {
			policy = config["maxmemory-policy"]
		}
	}
	return checkVersionAndPolicy(version, policy)
}

// checkVersionAndPolicy returns an error for a server that cannot be the store. An empty value is unknown and accepted.
func checkVersionAndPolicy(version, policy string) error {
	if version != "" {
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err == nil && n < oldest {
			return fmt.Errorf("%w: it is Redis %s; install Redis %d or later, or Valkey", ErrUnsuitable, version, oldest)
		}
	}
	if policy != "" && policy != "noeviction" {
		return fmt.Errorf("%w: its maxmemory-policy is %s, which drops visitors' places when memory is short; "+
			"set it to noeviction (CONFIG SET maxmemory-policy noeviction, and in redis.conf or the provider's parameter group)", ErrUnsuitable, policy)
	}
	return nil
}

// field returns the value of a line "name:value" of an INFO answer.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
