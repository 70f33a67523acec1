package meter

import (
	"crypto/rand"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/token"
)

func newID() (id token.ID) {
	rand.Read(id[:])
	return id
}

// Take agrees with a plain GCRA on a map, for a few sessions at any times.
func TestTake_IsGCRA(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := NewRequests()
		q := Quota{rapid.Int64Range(1, 1000).Draw(t, "n"), rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Hour, 24 * time.Hour}).Draw(t, "per")}
		gateways := rapid.Int64Range(0, 4).Draw(t, "gateways")
		interval := max(1, int64(q.Per/step)*max(1, gateways)/q.N)
		full := map[int]int64{}
		var sessions [5]token.ID
		for i := range sessions {
			sessions[i] = newID()
		}
		now := time.Duration(0)
		for range rapid.IntRange(1, 300).Draw(t, "requests") {
			now += time.Duration(rapid.Int64Range(0, int64(q.Per)/q.N*2).Draw(t, "later"))
			s := rapid.IntRange(0, 4).Draw(t, "session")
			at := int64(now / step)
			want := time.Duration(0)
			if over := max(at, full[s]) - at - max(0, int64(q.Per/step)-interval); over > 0 {
				want = time.Duration(over) * step
			} else {
				full[s] = max(at, full[s]) + interval
			}
			if got := r.Take(sessions[s], now, q, gateways); got != want {
				t.Fatalf("session %d at %s: wait %s, want %s", s, now, got, want)
			}
		}
	})
}

// A session gets exactly its quota on any number of connections, beside other sessions.
func TestTake_CountsConcurrentRequestsOnce(t *testing.T) {
	t.Parallel()
	r := NewRequests()
	sid, q := newID(), Quota{100, time.Hour}
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				if r.Take(sid, time.Minute, q, 1) == 0 {
					passed.Add(1)
				}
				r.Take(newID(), time.Minute, q, 1)
			}
		})
	}
	all.Wait()
	if passed.Load() != 100 {
		t.Errorf("%d requests passed, want 100", passed.Load())
	}
}

func BenchmarkRequests(b *testing.B) {
	r, q := NewRequests(), Quota{1 << 40, time.Hour}
	sids := make([]token.ID, 1<<10)
	for i := range sids {
		sids[i] = newID()
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Take(sids[i&1023], time.Duration(i)*time.Microsecond, q, 1)
	}
}

// Client addresses that differ in one byte do not displace each other.
func TestRequests_KeepNeighbouringAddressesApart(t *testing.T) {
	r, q := NewRequests(), Quota{N: 1, Per: time.Hour}
	const addresses = 1000
	id := func(i int) token.ID {
		return proxy.ClientKey(netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}))
	}
	for i := range addresses {
		r.Take(id(i), 0, q, 1)
	}
	kept := 0
	for i := range addresses {
		if r.Exhausted(id(i), 0, q, 1) > 0 {
			kept++
		}
	}
	if kept < addresses*95/100 {
		t.Errorf("%d of %d addresses are remembered", kept, addresses)
	}
}
