package admission

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// benchQueue is the length of the queue in the benchmarks.
const benchQueue = 1_000_000

// benchRoom returns a room on Redis's own clock with benchQueue enrolled visitors, and their tickets in order.
func benchRoom(b *testing.B) (*Room, []Ticket, redis.UniversalClient) {
	b.Helper()
	client := redistest.Server(b).Client()
	// With an interval of a millisecond no tick is skipped.
	core, err := New(Options{Client: client, Timeout: 10 * time.Second, Tick: time.Millisecond, Log: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	p := basePolicy
	p.Rate, p.Burst = 100_000, 100_000 // 100/s: the front has 1,000
	r := core.Room("sale", p)
	ctx := context.Background()
	if err := r.Tick(ctx); err != nil {
		b.Fatal(err)
	}
	if err := r.Pause(ctx, "bench"); err != nil {
		b.Fatal(err)
	}
	qs := make([]enterQ, batchMost)
	queue := make([]Ticket, 0, benchQueue)
	for len(queue) < benchQueue {
		for i := range qs {
			qs[i] = enrolling(r, testID(), r.Now()-int64(benchQueue-len(queue)-i))
		}
		replies, err := r.calls.sendEnter(ctx, qs)
		if err != nil {
			b.Fatal(err)
		}
		for i, a := range replies {
			queue = append(queue, Ticket{ID: qs[i].id, Order: a.ord, Seen: a.h.time, Hold: qs[i].hold, Epoch: a.h.epoch, Fence: a.h.fence})
		}
	}
	benchTick(b, r)
	return r, queue, client
}

// benchTick waits until a tick has built a snapshot.
func benchTick(b *testing.B, r *Room) {
	b.Helper()
	for seq := r.Snapshot().Seq; r.Snapshot().Seq == seq; {
		if err := r.Tick(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkJoinLongQueue(b *testing.B) {
	r, _, _ := benchRoom(b)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		id := testID()
		for pb.Next() {
			s, _, err := r.Join(context.Background(), Arrival{ID: id})
			if err != nil || s.State != Waiting || s.Ticket.Epoch != "" {
				b.Errorf("%+v %v", s, err)
				return
			}
		}
	})
}

func BenchmarkAhead(b *testing.B) {
	r, queue, _ := benchRoom(b)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if r.Ahead(queue[i*7919%benchQueue].Order) < 0 {
				b.Error("negative")
				return
			}
		}
	})
}

func BenchmarkCheckFromSnapshot(b *testing.B) {
	r, queue, _ := benchRoom(b)
	far := queue[benchQueue/2:]
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if s, err := r.Check(context.Background(), far[i*7919%len(far)]); err != nil || s.State != Waiting {
				b.Errorf("%+v %v", s, err)
				return
			}
		}
	})
}

func BenchmarkCheckFromMemory(b *testing.B) {
	r, queue, _ := benchRoom(b)
	head := queue[:500]
	remember := func() {
		for _, t := range head {
			r.memory.put(t.ID, remembered{standing: Standing{State: Waiting, Ticket: t}, at: r.c.mono() + int64(time.Hour)})
		}
	}
	remember()
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if s, err := r.Check(context.Background(), head[i%len(head)]); err != nil || s.State != Waiting {
				b.Errorf("%+v %v", s, err)
				return
			}
		}
	})
}

// BenchmarkCheckAtTheFront measures checks that go to Redis in batches, with 500 callers a processor.
func BenchmarkCheckAtTheFront(b *testing.B) {
	r, queue, _ := benchRoom(b)
	head := queue[:900]
	b.ReportAllocs()
	b.SetParallelism(500)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i := int(testID()[0])
		for pb.Next() {
			i++
			t := head[i%len(head)]
			if a, err := r.calls.frontChecks.ask(context.Background(), seenQ{id: t.ID, hold: 255 * time.Second}); err != nil || a.code != replyWaiting {
				b.Errorf("%+v %v", a, err)
				return
			}
		}
	})
}

// redisCPU returns the processor time that a server has used, in seconds.
func redisCPU(b *testing.B, client redis.UniversalClient) (sum float64) {
	b.Helper()
	info, err := client.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		for _, name := range []string{"used_cpu_user:", "used_cpu_sys:"} {
			if v, ok := strings.CutPrefix(line, name); ok {
				n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
				if err != nil {
					b.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}

// BenchmarkAdvance measures room_advance with benchQueue waiting visitors; each tick builds a snapshot from the one before.
// script-µs is the time in Redis, cpu-µs its processor time including calls that find the tick done, B/visitor the memory of a
// waiting visitor in Redis, snapshot-B the size of the snapshot.
func BenchmarkAdvance(b *testing.B) {
	r, _, client := benchRoom(b)
	ctx := context.Background()
	size := int64(0)
	for _, key := range r.keys {
		n, err := client.MemoryUsage(ctx, key, 0).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			b.Fatal(err)
		}
		size += n
	}
	for range 50 { // until the sketch is whole
		benchTick(b, r)
	}
	if err := client.ConfigResetStat(ctx).Err(); err != nil {
		b.Fatal(err)
	}
	before := redisCPU(b, client)
	b.ResetTimer()
	for range b.N {
		benchTick(b, r)
	}
	b.StopTimer()
	b.ReportMetric((redisCPU(b, client)-before)*1e6/float64(b.N), "cpu-µs")
	stats, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(stats) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:"); ok {
			_, per, _ := strings.Cut(rest, "usec_per_call=")
			per, _, _ = strings.Cut(per, ",")
			us, err := strconv.ParseFloat(per, 64)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(us, "script-µs")
		}
	}
	text, err := client.Get(ctx, r.keys[14]).Result()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(text)), "snapshot-B")
	b.ReportMetric(float64(size)/benchQueue, "B/visitor")
}

// BenchmarkMemory measures the memory that this process keeps of a ticket.
func BenchmarkMemory(b *testing.B) {
	b.ReportAllocs()
	var m memory
	m.init()
	for range b.N {
		id := testID()
		m.put(id, remembered{standing: Standing{State: Active, Ticket: Ticket{ID: id}}})
	}
}

// BenchmarkPlacesByID measures the cost to the store of a place by an id that may exist, in batches of the largest size. The
// place of an account is searched under all of its ids.
func BenchmarkPlacesByID(b *testing.B) {
	for _, kind := range []string{"keyed", "account"} {
		b.Run(kind, func(b *testing.B) {
			core, err := New(Options{Client: redistest.Server(b).Client(), Timeout: 10 * time.Second, Log: quiet()})
			if err != nil {
				b.Fatal(err)
			}
			p := basePolicy
			p.MinWait = time.Hour
			r := core.Room("sale", p)
			if err := r.Tick(b.Context()); err != nil {
				b.Fatal(err)
			}
			qs := make([]enterQ, batchMost)
			for n := 0; b.Loop(); n++ {
				for i := range qs {
					qs[i] = enterQ{kind: kind, id: testID(), client: testClient(1), hold: 255 * time.Second}
				}
				if _, err := r.calls.sendEnter(b.Context(), qs); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batchMost), "ns/place")
		})
	}
}
