package recent

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/token"
)

func id(i int) token.ID { return token.ID{byte(i), byte(i >> 8), byte(i >> 16)} }

func TestClients_AreFoundByPrefix(t *testing.T) {
	var c Clients
	if got, all := c.In("sale", netip.MustParsePrefix("0.0.0.0/0"), 1, 10); len(got) != 0 || all != 0 {
		t.Errorf("before the first use: %v", got)
	}
	now := int64(1_800_000_000_000_000)
	for i, address := range []string{"203.0.113.7", "203.0.113.9", "203.0.114.1", "::ffff:203.0.113.11", "2001:db8::1", "2001:db8:1::1", "fe80::1%eth0"} {
		c.Note("sale", id(i), netip.MustParseAddr(address), now+int64(i), time.Minute)
	}
	c.Note("vip", id(100), netip.MustParseAddr("203.0.113.7"), now, time.Minute)
	c.Note("sale", id(101), netip.Addr{}, now, time.Minute)
	for prefix, want := range map[string][]int{
		"203.0.113.0/24": {3, 1, 0}, "203.0.113.9/32": {1}, "203.0.0.0/16": {3, 2, 1, 0}, "198.51.100.0/24": nil,
		"2001:db8::/32": {5, 4}, "2001:db8::/48": {4}, "fe80::/10": {6},
	} {
		got, all := c.In("sale", netip.MustParsePrefix(prefix), now+10, 10)
		if len(got) != len(want) || all != len(want) {
			t.Errorf("%s: %v, %d, want %v", prefix, got, all, want)
			continue
		}
		for i := range want {
			if got[i].ID != id(want[i]) {
				t.Errorf("%s: %v at %d, want %v", prefix, got[i].ID, i, want[i])
			}
		}
	}
	if got, all := c.In("sale", netip.MustParsePrefix("203.0.0.0/16"), now+10, 2); len(got) != 2 || all != 4 || got[0].ID != id(3) {
		t.Errorf("with a limit: %v, %d", got, all)
	}
}

// A use is forgotten after a time, a ticket has its last address only, and memory is bounded.
func TestClients_Forget(t *testing.T) {
	var c Clients
	now := int64(1_800_000_000_000_000)
	all := netip.MustParsePrefix("192.0.2.0/24")
	c.Note("sale", id(1), netip.MustParseAddr("192.0.2.1"), now, time.Minute)
	c.Note("sale", id(1), netip.MustParseAddr("192.0.2.2"), now+1, time.Minute)
	if got, n := c.In("sale", all, now+2, 10); n != 1 || got[0].Address.String() != "192.0.2.2" || got[0].At != now+1 {
		t.Errorf("%v, %d", got, n)
	}
	if got, _ := c.In("sale", netip.MustParsePrefix("192.0.2.1/32"), now+2, 10); len(got) != 0 {
		t.Errorf("at the former address: %v", got)
	}
	if got, _ := c.In("sale", all, now+1+time.Minute.Microseconds(), 10); len(got) != 0 {
		t.Errorf("after a minute: %v", got)
	}
	for i := range most + block/2 {
		c.Note("sale", id(10+i), netip.MustParseAddr("192.0.2.3"), now+2+int64(i), time.Minute)
	}
	if got, n := c.In("sale", all, now+most, 10); n != most || got[0].ID != id(9+most+block/2) {
		t.Errorf("%d uses are kept, the newest of %v; want the last %d", n, got[0].ID, most)
	}
}

// A search while tickets are used, which overtake it in the ring, finds only last uses.
func TestClients_SearchesWhileTheyAreUsed(t *testing.T) {
	var c Clients
	var using sync.WaitGroup
	for range 2 {
		using.Go(func() {
			for i := range most/2 + block { // most and more by both
				c.Note("sale", id(i), netip.MustParseAddr("192.0.2.1"), int64(i), time.Minute)
			}
		})
	}
	for range 4 {
		_, n := c.In("sale", netip.MustParsePrefix("192.0.2.0/24"), 1, 10)
		if n > most {
			t.Errorf("%d tickets of %d", n, most)
		}
	}
	using.Wait()
	if _, n := c.In("sale", netip.MustParsePrefix("192.0.2.0/24"), 1, 10); n < most/2 || n > most/2+block {
		t.Errorf("%d tickets", n)
	}
}

func TestNote_AllocatesNothing(t *testing.T) {
	var c Clients
	address := netip.MustParseAddr("192.0.2.1")
	c.Note("sale", id(1), address, 1, time.Minute)
	if n := testing.AllocsPerRun(100, func() { c.Note("sale", id(2), address, 2, time.Minute) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNote(b *testing.B) {
	var c Clients
	address := netip.MustParseAddr("192.0.2.1")
	for i := range b.N {
		c.Note("sale", id(i&0xffff), address, int64(i), time.Minute)
	}
}
