package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
)

// asynqSide is asynq in this process, with its defaults and as many connections as it can use.
type asynqSide struct {
	redis  *rig.Redis
	client *asynq.Client
	// oneQueue puts all tenants into the same queue, asynq's default.
	oneQueue bool
	own      string // the only queue; empty: one of each tenant
}

func newAsynq(r *rig.Redis) *asynqSide {
	return &asynqSide{redis: r, client: asynq.NewClient(asynq.RedisClientOpt{Addr: r.Addr, PoolSize: fillers})}
}

// fillers is the number of goroutines that enqueue tasks.
const fillers = 64

func (a *asynqSide) ways(b *bench, jobs int) (ways []way) {
	for _, goroutines := range []int{8, 64, 256} {
		client := asynq.NewClient(asynq.RedisClientOpt{Addr: a.redis.Addr, PoolSize: goroutines})
		b.Cleanup(func() { _ = client.Close() })
		ways = append(ways, way{name: fmt.Sprintf("asynq, %d goroutines", goroutines), put: func(ctx context.Context) error {
			return a.enqueue(ctx, client, tenantName(0), tenantName(0), jobs, goroutines)
		}})
	}
	return ways
}

func (a *asynqSide) name() string {
	if a.oneQueue {
		return "asynq, one queue"
	}
	return "asynq"
}

func (a *asynqSide) queue(i int) string {
	if a.oneQueue {
		i = 0
	}
	return cmp.Or(a.own, tenantName(i))
}

func (a *asynqSide) fill(ctx context.Context, jobs []int) error {
	for i, n := range jobs {
		if err := a.enqueue(ctx, a.client, tenantName(i), a.queue(i), n, min(fillers, n)); err != nil {
			return err
		}
	}
	return nil
}

// enqueue enqueues n tasks, one call each, from several goroutines. The type of a task is the tenant.
func (a *asynqSide) enqueue(ctx context.Context, client *asynq.Client, tenant, queue string, n, goroutines int) error {
	parallel, ctx := errgroup.WithContext(ctx)
	for k := range goroutines {
		parallel.Go(func() error {
			for range n/goroutines + (n%goroutines+goroutines-1-k)/goroutines {
				if _, err := client.EnqueueContext(ctx, asynq.NewTask(tenant, payload), asynq.Queue(queue)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return parallel.Wait()
}

func (a *asynqSide) start(workers, tenants int, handle handler) (stop func(), err error) {
	queues := map[string]int{}
	for i := range tenants {
		queues[a.queue(i)] = 1
	}
	s := asynq.NewServer(asynq.RedisClientOpt{Addr: a.redis.Addr, PoolSize: workers + 10},
		asynq.Config{Concurrency: workers, Queues: queues, LogLevel: asynq.FatalLevel})
	err = s.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		handle(ctx, t.Type())
		return nil
	}))
	return s.Shutdown, err
}

// left reads asynq's lists of each queue.
func (a *asynqSide) left(ctx context.Context, tenants int) (left, running int64, err error) {
	pipe := a.redis.Client.Pipeline()
	if a.oneQueue {
		tenants = 1
	}
	for i := range tenants {
		key := "asynq:{" + a.queue(i) + "}:"
		pipe.LLen(ctx, key+"active")
		pipe.LLen(ctx, key+"pending")
	}
	all, err := pipe.Exec(ctx)
	if err != nil {
		return 0, 0, err
	}
	for i, c := range all {
		n := c.(*redis.IntCmd).Val()
		left += n
		if i%2 == 0 {
			running += n
		}
	}
	return left, running, nil
}

func (a *asynqSide) submit(ctx context.Context) error {
	_, err := a.client.EnqueueContext(ctx, asynq.NewTask(tenantName(0), payload), asynq.Queue(a.queue(0)))
	return err
}
