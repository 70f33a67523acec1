package proxy

import (
	"fmt"
	"math/bits"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// serversOf returns an origin of n servers, to none of which a request is sent.
func serversOf(t testing.TB, n int) *Origin {
	t.Helper()
	var urls []string
	for i := range n {
		urls = append(urls, fmt.Sprintf("http://192.0.2.%d", i+1))
	}
	o, err := New(Config{ID: "site", Servers: urls})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// one runs one exchange.
func (o *Origin) one(now time.Time, v verdict) *server {
	s, _, _ := o.pick(now, 0, nil)
	o.enter(nil, 0, nil)
	o.done(nil, s, nil, false, v, "test", now)
	return s
}

// Equally loaded servers take turns, also while one of them is out.
func TestServers_TakeTurns(t *testing.T) {
	o := serversOf(t, 4)
	o.servers.all[1].inUse++
	o.failed(o.servers.all[1], errTimeout, noon)
	got := map[string]int{}
	for range 300 {
		got[o.one(time.Now(), sound).url]++
	}
	for _, k := range []int{0, 2, 3} {
		if n := got[o.servers.all[k].url]; n != 100 {
			t.Errorf("server %d had %d of 300, want 100", k, n)
		}
	}
}

func TestServers_PassiveHealth(t *testing.T) {
	for _, tc := range []struct {
		name     string
		servers  int
		verdicts string // of the first server: s, f, u
		out      bool
	}{
		{"a fault", 2, "f", false},
		{"one too few", 2, "ffff", false},
		{"five in a row", 2, "fffff", true},
		{"an answer between", 2, "ffffsffff", false},
		{"a client that leaves between", 2, "ffufff", true},
		{"clients that leave", 2, "uuuuuuuuuu", false},
		{"the only server", 1, "ffffffffff", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := serversOf(t, tc.servers)
			var told []Change
			o.OnChange(func(c Change) { told = append(told, c) })
			s := o.servers.all[0]
			for _, v := range tc.verdicts {
				o.enter(nil, 0, nil)
				s.inUse++
				o.done(nil, s, nil, false, map[rune]verdict{'s': sound, 'f': faulty, 'u': unknown}[v], "status 503", noon)
			}
			if st := o.Stats().Servers[0]; st.Up == tc.out || len(told) > 0 != tc.out {
				t.Errorf("up %v, told %v, want out: %v", st.Up, told, tc.out)
			}
			for _, c := range told {
				if c.Up || c.Server != s.url || c.Reason != "status 503" {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

// A fault that all servers share takes out at most half of them. If all are out, all are tried.
func TestServers_KeepHalf(t *testing.T) {
	o := serversOf(t, 5)
	for range 1000 {
		o.one(noon, faulty)
	}
	out := 0
	for _, s := range o.Stats().Servers {
		if !s.Up {
			out++
		}
	}
	if out != 2 {
		t.Errorf("%d of 5 are out, want 2", out)
	}
	for _, s := range o.servers.all {
		s.inUse++
		o.failed(s, errTimeout, time.Now().Add(-time.Hour))
	}
	var tried uint64
	for range o.servers.all {
		s, _, forced := o.pick(time.Now(), tried, nil)
		if s == nil || !forced {
			t.Fatal("a server was not tried, or without the remark that all are out")
		}
		tried |= s.bit
	}
	if s, _, _ := o.pick(time.Now(), tried, nil); s != nil {
		t.Error("a server was tried twice")
	}
}

// A lack of descriptors, memory or ports on this machine does not count against a server.
func TestServers_IgnoreLocalFaults(t *testing.T) {
	for _, tc := range []struct {
		err error
		out bool
	}{
		{syscall.ECONNREFUSED, true},
		{syscall.EMFILE, false},
		{syscall.ENFILE, false},
		{syscall.EADDRNOTAVAIL, false},
		{syscall.ENOBUFS, false},
	} {
		o := serversOf(t, 2)
		s, _, _ := o.pick(noon, 0, nil)
		o.failed(s, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", tc.err)}, noon)
		if out := !s.up(); out != tc.out || s.inUse != 0 {
			t.Errorf("%v: out %v, want %v; in use: %d", tc.err, out, tc.out, s.inUse)
		}
	}
}

// A request that spent its time in the queue does not count against the server that had no time left to respond.
func TestServers_IgnoreTimeoutAfterQueue(t *testing.T) {
	for _, tc := range []struct {
		firstByte, timeout, given time.Duration
		want                      verdict
	}{
		{time.Minute, time.Hour, 59 * time.Second, faulty},
		{time.Minute, time.Hour, 10 * time.Second, unknown},
		{time.Hour, time.Minute, 59 * time.Second, faulty},
		{time.Hour, time.Minute, 10 * time.Second, unknown},
		{0, time.Minute, 10 * time.Second, unknown},
		{time.Minute, 0, 59 * time.Second, faulty},
	} {
		o := serversOf(t, 2)
		o.cfg.FirstByteTimeout, o.cfg.Timeout = tc.firstByte, tc.timeout
		x := &exchange{o: o, timing: timing{sentAt: time.Now().Add(-tc.given)}, outcome: Outcome{Kind: KindTimeout}}
		if got, _ := x.verdict(); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}

// A server is out for longer each time. Afterwards it receives about one request at a time, and is out again at its first
// fault. After a while in good health the count starts again.
func TestServers_StayOutLongerEachTime(t *testing.T) {
	o := serversOf(t, 2)
	bad, now := o.servers.all[0], noon
	fault := func() {
		o.enter(nil, 0, nil)
		bad.inUse++
		o.done(nil, bad, nil, false, faulty, "test", now)
	}
	for range strikesOut {
		fault()
	}
	for _, d := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		d *= time.Second
		if got := bad.until.Sub(now); got != d {
			t.Fatalf("passed over for %v, want %v", got, d)
		}
		if s, _, _ := o.pick(now.Add(d-1), 0, nil); s == bad {
			t.Fatal("chosen too early")
		} else {
			o.drop(s)
		}
		fault() // begun before; it does not count
		now = bad.until
		for range 5 { // held, so that loads grow
			o.pick(now, 0, nil)
		}
		if bad.inUse > 1 {
			t.Fatalf("%d requests at once to a server that has not shown that it works", bad.inUse)
		}
		bad.inUse, o.servers.all[1].inUse = 0, 0
		fault()
	}
	now = bad.until
	o.enter(nil, 0, nil)
	bad.inUse++
	o.done(nil, bad, nil, false, sound, "", now)
	if !o.Stats().Servers[0].Up {
		t.Fatal("a good answer does not bring it back")
	}
	now = now.Add(failedMax)
	for range strikesOut {
		fault()
	}
	if got := bad.until.Sub(now); got != failedBase {
		t.Errorf("after good health it was passed over for %v, want %v", got, failedBase)
	}
}

// The share of a server that is back grows gradually.
func TestServers_SlowStart(t *testing.T) {
	for _, tc := range []struct {
		after    time.Duration
		min, max int // of the next requests, until all carry as much as the others
	}{
		{0, 9, 11}, {slowStart / 3, 38, 41}, {slowStart * 2 / 3, 68, 71}, {slowStart, 100, 100}, {time.Hour, 100, 100},
	} {
		o := serversOf(t, 2)
		o.servers.all[0].inUse = 100
		back := o.servers.all[1]
		back.inUse++
		o.failed(back, errTimeout, time.Now().Add(-time.Hour))
		o.mu.Lock()
		back.bringBack(noon)
		o.mu.Unlock()
		n := 0
		for {
			if s, _, _ := o.pick(noon.Add(tc.after), 0, nil); s != back {
				break
			}
			n++
		}
		if n < tc.min || n > tc.max+1 {
			t.Errorf("after %v it was given %d at once, want %d to %d", tc.after, n, tc.min, tc.max)
		}
	}
}

// In any order of events: an untried server is found, no server is tried twice, and all counts are right.
func TestServers_FollowModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "servers")
		var urls []string
		for i := range n {
			urls = append(urls, fmt.Sprintf("http://192.0.2.%d", i+1))
		}
		o, err := New(Config{Servers: urls, Health: HealthConfig{Path: "/"}})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		var held []*server
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				st := o.Stats()
				sum := 0
				for _, s := range st.Servers {
					sum += s.InUse
				}
				if sum != len(held) || st.InUse != len(held) {
					t.Fatalf("%d are counted on servers, %d in all, %d are held", sum, st.InUse, len(held))
				}
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "passes")))
			},
			"request": func(t *rapid.T) {
				o.enter(nil, 0, nil)
				var tried uint64
				for {
					s, _, forced := o.pick(now, tried, nil)
					if s == nil {
						if bits.OnesCount64(tried) != n {
							t.Fatal("a server was not tried")
						}
						o.leave(nil)
						return
					}
					if tried&s.bit != 0 {
						t.Fatal("tried twice")
					}
					healthy := slices.ContainsFunc(o.servers.all, func(s *server) bool {
						r, _ := s.rank(now)
						return r == rankIn && tried&s.bit == 0
					})
					if n > 1 && forced == healthy {
						t.Fatalf("forced %v while a healthy one is there: %v", forced, healthy)
					}
					if rapid.Bool().Draw(t, "connects") {
						o.worked(s, now)
						held = append(held, s)
						return
					}
					o.failed(s, errTimeout, now.Add(-time.Hour))
					tried |= s.bit
				}
			},
			"end": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				o.done(nil, held[i], nil, false, verdict(rapid.IntRange(0, 2).Draw(t, "verdict")), "test", now)
				held = slices.Delete(held, i, i+1)
			},
			"check": func(t *rapid.T) {
				s := o.servers.all[rapid.IntRange(0, n-1).Draw(t, "which")]
				var err error
				if rapid.Bool().Draw(t, "fails") {
					err = errTimeout
				}
				o.checked(s, err, now)
				if err == nil && s.checks >= checksUp && s.down || err != nil && s.checks <= -checksDown && !s.down {
					t.Fatal("checks that agree are not heeded")
				}
			},
		})
	})
}
