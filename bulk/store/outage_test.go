package store

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// TestFullStore_Drains: at maxmemory submissions are refused; accepted jobs run, their outcomes are written, and data is deleted.
func TestFullStore_Drains(t *testing.T) {
	client := redistest.Server(t).Client()
	s, c := openOn(t, client, func(set *Settings) { set.KeepJobs, set.KeepGroups = time.Hour, time.Hour })
	var logged bytes.Buffer
	s.o.Log = slog.New(slog.NewTextHandler(&logged, nil))
	for _, id := range []string{"g", "stop"} {
		create(t, s, GroupSpec{ID: id, Tenant: "acme"})
		add(t, s, id, 0, 10)
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddJobs(t.Context(), "g", Chunk{}, []Job{{ID: "more", Payload: []byte("1")}}); !errors.Is(err, ErrStore) || !errors.Is(err, ErrFull) {
		t.Fatalf("a full store takes jobs: %v", err)
	}
	if _, _, err := s.CreateGroup(t.Context(), GroupSpec{ID: "another", Tenant: "acme", Type: "webhook"}); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if n := strings.Count(logged.String(), "the store's memory is full"); n != 1 {
		t.Errorf("it is logged %d times, want once a minute:\n%s", n, &logged)
	}
	if _, err := s.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cancel(t.Context(), "stop"); err != nil {
		t.Fatal(err)
	}
	p := pull(t, s, 10)
	if len(p.Jobs) != 10 {
		t.Fatalf("%d jobs of 10 start", len(p.Jobs))
	}
	ack(t, s, Done, p.Jobs...)
	for range 6 {
		for _, id := range dispatch(t, s).Tend {
			unlock, ok, err := s.Lock(t.Context(), id, time.Second)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			tend, err := s.Tend(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if tend.Reduce {
				reduce(t, s, id)
			}
			unlock()
		}
		c.advance(30 * time.Minute)
	}
	for _, id := range []string{"g", "stop"} {
		_, err := s.Group(t.Context(), id)
		refused(t, err, CodeNotFound)
	}
}

// TestDurability_WaitsForReplica uses a real replica. A submission that no replica confirms returns an ErrStore; repeated once there is
// a replica, it succeeds.
func TestDurability_WaitsForReplica(t *testing.T) {
	master := redistest.Server(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Server(t, "--replicaof", host+" "+port)
	linked(t, replica.Client())
	s, _ := openOn(t, master.Client(), func(set *Settings) { set.WaitReplicas = 1 })
	create(t, s, GroupSpec{ID: "g", Tenant: "acme"})
	add(t, s, "g", 0, 3)
	n, err := replica.Client().HLen(t.Context(), s.keys[keyJobs]).Result()
	if err != nil || n != 3 {
		t.Fatalf("the replica has %d jobs, %v", n, err)
	}
	replica.Stop()
	s.o.Timeout = 500 * time.Millisecond
	_, err = s.AddJobs(t.Context(), "g", Chunk{Key: "k", Last: true}, []Job{{ID: "x", Payload: []byte("1")}})
	if !errors.Is(err, ErrStore) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Fatalf("nobody confirmed: %v", err)
	}
	replica.Cont()
	s.o.Timeout = 10 * time.Second
	var done *ChunkDone
	if _, err = s.AddJobs(t.Context(), "g", Chunk{Key: "k", Last: true}, []Job{{ID: "x", Payload: []byte("1")}}); !errors.As(err, &done) {
		t.Fatalf("sent again: %v", err)
	}
	clean(t, s)
}

// TestDurability_FailsWithoutReplicas: WAIT goes to the shard's own node.
func TestDurability_FailsWithoutReplicas(t *testing.T) {
	s, _ := openOn(t, redistest.Cluster(t), func(set *Settings) { set.WaitReplicas = 1 })
	s.o.Timeout = 500 * time.Millisecond
	_, _, err := s.CreateGroup(t.Context(), GroupSpec{ID: "g", Tenant: "acme", Type: "webhook"})
	if !errors.Is(err, ErrStore) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Fatalf("nobody confirmed: %v", err)
	}
}

// linked waits until a replica follows its master.
func linked(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		info, err := client.Info(ctx, "replication").Result()
		if err == nil && strings.Contains(info, "master_link_status:up") {
			tick.Stop()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%v: %s", err, info)
		case <-tick.C:
		}
	}
}
