package admission

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// commands returns how often f has a server run each command.
func commands(t *testing.T, client redis.UniversalClient, f func()) map[string]int64 {
	t.Helper()
	must(t, client.ConfigResetStat(ctx5(t)).Err())
	f()
	stats, err := client.Info(ctx5(t), "commandstats").Result()
	must(t, err)
	ran := map[string]int64{}
	for line := range strings.Lines(stats) {
		if name, ok := strings.CutPrefix(line, "cmdstat_"); ok {
			name, _, _ = strings.Cut(name, ":")
			ran[name] = calls(stats, name)
		}
	}
	for _, own := range []string{"config|resetstat", "info"} {
		delete(ran, own)
	}
	return ran
}

// A join in a room without a lottery reads and writes the state once.
func TestJoin_CostsTheseCommands(t *testing.T) {
	t.Parallel()
	client, c, p := redistest.Server(t).Client(), newTestClock(), basePolicy
	p.Rate, p.Burst = 0, 1000
	r := testRoom(t, client, "wr", c, p)
	mustJoin(t, r, testID(), testClient(1)) // takes the burst, and loads the script
	want := map[string]int64{"evalsha": 1, "hget": 2, "hincrby": 1, "hmget": 2, "hset": 2, "zadd": 1, "zcard": 1, "zscore": 2}
	if ran := commands(t, client, func() { mustJoin(t, r, testID(), testClient(2)) }); !maps.Equal(ran, want) {
		t.Errorf("%v, want %v", ran, want)
	}
}

// After the opening the size of the pre-queue stays the same, whoever joins later.
func TestPrequeued_IsFixedAfterOpening(t *testing.T) {
	t.Parallel()
	c := newTestClock()
	p := lottery(c.now(), time.Minute)
	p.Rate, p.Burst = 0, 0
	r := testRoom(t, redistest.Client(t), redistest.Prefix(t), c, p)
	gather(t, r, 5)
	for range 3 * int(p.Absence/time.Second) {
		c.pass(time.Second)
		mustTick(t, r)
	}
	mustJoin(t, r, testID(), testClient(2))
	mustTick(t, r)
	c.pass(time.Second)
	mustTick(t, r)
	if s := r.Snapshot(); s.Gathering() || s.Prequeued != 5 {
		t.Errorf("gathering %t, %d gathered, want 5", s.Gathering(), s.Prequeued)
	}
}
