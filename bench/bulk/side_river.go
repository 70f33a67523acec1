package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/internal/sqltest"
)

// River's own benchmark has these settings. The defaults, 100 ms and 1 s, would limit a process to ten fetches a second.
const (
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
	riverBatch    = 5000 // jobs of an insertion
)

// riverSide is River in this process, over a PostgreSQL of its own. It has no tenants.
type riverSide struct {
	server *sqltest.Server
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // inserts only
}

// newRiver starts PostgreSQL, as durable as the Redis of the others. An errLeftOut names what is missing.
func newRiver(r *rig.Run, durable bool) *riverSide {
	set := []string{"synchronous_commit=off"} // written some 0.2 s later, as an append-only file that is synced every second
	if !durable {
		set = append(set, "fsync=off", "full_page_writes=off")
	}
	server, err := sqltest.StartPostgres(set...)
	if errors.Is(err, sqltest.ErrNotInstalled) {
		err = errLeftOut(err.Error())
	}
	rig.Check(err)
	r.Cleanup(server.Stop)
	s := &riverSide{server: server, pool: rig.Must(pgxpool.New(r, server.URL()))}
	r.Cleanup(s.pool.Close)
	migrator := rig.Must(rivermigrate.New(riverpgxv5.New(s.pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)}))
	rig.Must(migrator.Migrate(r, rivermigrate.DirectionUp, nil))
	s.client = rig.Must(river.NewClient(riverpgxv5.New(s.pool), &river.Config{Logger: slog.New(slog.DiscardHandler)}))
	return s
}

func (s *riverSide) name() string { return "river" }

// riverJob is a job; its arguments are the payload.
type riverJob struct{}

func (riverJob) Kind() string                 { return "noop" }
func (riverJob) MarshalJSON() ([]byte, error) { return payload, nil }

func (s *riverSide) fill(ctx context.Context, jobs []int) error {
	if len(jobs) != 1 {
		return fmt.Errorf("river has one queue here, not %d tenants", len(jobs))
	}
	return s.insert(ctx, jobs[0], 1)
}

// insert inserts jobs on several connections.
func (s *riverSide) insert(ctx context.Context, jobs, connections int) error {
	parallel, ctx := errgroup.WithContext(ctx)
	for _, left := range split(jobs, connections) {
		parallel.Go(func() error {
			for ; left > 0; left -= riverBatch {
				batch := make([]river.InsertManyParams, min(left, riverBatch))
				for i := range batch {
					batch[i].Args = riverJob{}
				}
				if _, err := s.client.InsertManyFast(ctx, batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return parallel.Wait()
}

func (s *riverSide) start(workers, _ int, handle handler) (stop func(), err error) {
	ctx := context.Background()
	kinds := river.NewWorkers()
	river.AddWorker(kinds, river.WorkFunc(func(ctx context.Context, _ *river.Job[riverJob]) error {
		handle(ctx, tenantName(0))
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll, Workers: kinds, Logger: slog.New(slog.DiscardHandler),
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
	})
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() { rig.Check(client.Stop(ctx)) }, nil
}

func (s *riverSide) left(ctx context.Context, _ int) (left, running int64, err error) {
	err = s.pool.QueryRow(ctx, "SELECT count(*), count(*) FILTER (WHERE state = 'running') FROM river_job WHERE finalized_at IS NULL").Scan(&left, &running)
	return left, running, err
}

func (s *riverSide) submit(ctx context.Context) error {
	_, err := s.client.Insert(ctx, riverJob{}, nil)
	return err
}

func (s *riverSide) ways(_ *bench, jobs int) (ways []way) {
	for _, n := range []int{1, connections} {
		ways = append(ways, way{name: fmt.Sprintf("river, %d connections", n), apart: true, put: func(ctx context.Context) error { return s.insert(ctx, jobs, n) }})
	}
	return ways
}

// empty truncates the table of jobs and lets the planner see that, as River's own benchmark does.
func (s *riverSide) empty(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, "TRUNCATE river_job")
	return err
}

func (s *riverSide) used(context.Context) (u usage, err error) {
	u.worker = rig.OwnCPU()
	if u.store, err = rig.CPU(s.server.PID()); err != nil {
		return u, err
	}
	ended, err := rig.Reaped(s.server.PID()) // of closed connections, and of vacuuming
	u.store += ended
	return u, err
}
