package token

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

func newTestCache(t testing.TB, size int, keys ...Key) *Cache {
	t.Helper()
	c := NewCache(size)
	c.Swap(mustRing(t, keys...))
	return c
}

func TestCache_AgreesWithRing(t *testing.T) {
	for _, key := range oneOfEach() {
		t.Run(key.Alg, func(t *testing.T) { answersAsItsRing(t, newTestCache(t, 64, key)) })
	}
}

func answersAsItsRing(t *testing.T, c *Cache) {
	w, p := testWaiting(), testPass()
	rawWaiting, rawPass := c.Ring().AppendWaiting(nil, &w), c.Ring().AppendPass(nil, &p)
	for round := range 3 { // the first fills, the others hit
		if got, err := c.VerifyWaiting(rawWaiting, testRoom, testNow); err != nil || got != w {
			t.Errorf("round %d: %+v, %v", round, got, err)
		}
		if got, err := c.VerifyPass(rawPass, testRoom, testNow); err != nil || got != p {
			t.Errorf("round %d: %+v, %v", round, got, err)
		}
		for _, row := range []struct {
			name   string
			verify func() error
			want   string
		}{
			{"pass as waiting token", func() error { _, err := c.VerifyWaiting(rawPass, testRoom, testNow); return err }, "type"},
			{"waiting token as pass", func() error { _, err := c.VerifyPass(rawWaiting, testRoom, testNow); return err }, "type"},
			{"pass in another room", func() error { _, err := c.VerifyPass(rawPass, "vip", testNow); return err }, "audience"},
			{"pass in no room", func() error { _, err := c.VerifyPass(rawPass, "", testNow); return err }, "audience"},
			{"waiting token in another room", func() error { _, err := c.VerifyWaiting(rawWaiting, "vip", testNow); return err }, "audience"},
			{"pass in its last second", func() error { _, err := c.VerifyPass(rawPass, testRoom, p.Expires+Leeway-1); return err }, ""},
			{"pass after it", func() error { _, err := c.VerifyPass(rawPass, testRoom, p.Expires+Leeway); return err }, "expired"},
			{"waiting token after its last second", func() error { _, err := c.VerifyWaiting(rawWaiting, testRoom, w.Expires+Leeway); return err }, "expired"},
			{"forged", func() error {
				_, err := c.VerifyPass([]byte(strings.Replace(string(rawPass), ".", ".e", 1)), testRoom, testNow)
				return err
			}, "signature"},
			{"too long", func() error { _, err := c.VerifyPass(make([]byte, 5000), testRoom, testNow); return err }, "too_long"},
		} {
			if err := row.verify(); Reason(err) != row.want {
				t.Errorf("round %d, %s: %v, want %q", round, row.name, err, row.want)
			}
		}
	}
}

// A client chooses which tokens it sends with each request. Those that ended, and those of other rooms, cost no check of a signature
// each time: checking one costs as much as ten requests.
func TestCache_ChecksSignaturesOfRefusedTokensOnce(t *testing.T) {
	c := newTestCache(t, 64, esKey("e1", true))
	p, w := testPass(), testWaiting()
	rawPass, rawWaiting := c.Ring().AppendPass(nil, &p), c.Ring().AppendWaiting(nil, &w)
	for _, row := range []struct {
		name   string
		verify func(room string, now int64) error
		raw    []byte
		ends   int64
	}{
		{"pass", func(room string, now int64) error { _, err := c.VerifyPass(rawPass, room, now); return err }, rawPass, p.Expires},
		{"waiting token", func(room string, now int64) error { _, err := c.VerifyWaiting(rawWaiting, room, now); return err }, rawWaiting, w.Expires},
	} {
		late := row.ends + Leeway
		for range 2 {
			if err := row.verify(testRoom, late); !errors.Is(err, ErrExpired) {
				t.Errorf("%s that has ended: %v", row.name, err)
			}
		}
		if e, _, err := c.state.Load().lookup(row.raw, testRoom, late); e == nil || err != nil {
			t.Errorf("%s that has ended is not kept: %v", row.name, err)
		}
		if err := row.verify(testRoom, row.ends); err != nil {
			t.Errorf("%s, after the clock was set back: %v", row.name, err)
		}
		if row.raw[len(row.raw)-2] ^= 1; !errors.Is(row.verify(testRoom, testNow), ErrSignature) {
			t.Errorf("a forged %s: %v", row.name, row.verify(testRoom, testNow))
		}
		if err := row.verify("vip", testNow); !errors.Is(err, ErrAudience) {
			t.Errorf("a forged %s of another room: %v, want no check of its signature", row.name, err)
		}
	}
}

func TestCache_ForgetsOnSwap(t *testing.T) {
	c := NewCache(8)
	p := testPass()
	raw := mustRing(t, hsKey("k1", true)).AppendPass(nil, &p)
	verify := func() string { _, err := c.VerifyPass(raw, testRoom, testNow); return Reason(err) }
	if got := verify(); got != "kid" || c.Ring() != nil {
		t.Errorf("without a ring: %q", got)
	}
	c.Swap(mustRing(t, hsKey("k1", true)))
	if a, b := verify(), verify(); a != "" || b != "" {
		t.Errorf("with its ring: %q, %q", a, b)
	}
	c.Swap(mustRing(t, hsKey("k2", true)))
	if got := verify(); got != "kid" {
		t.Errorf("after its key was retired: %q", got)
	}
}

func TestCache_CopiesTokens(t *testing.T) {
	c := newTestCache(t, 8, hsKey("k1", true))
	p := testPass()
	raw := c.Ring().AppendPass(nil, &p)
	shown, room := append([]byte(nil), raw...), []byte(testRoom)
	if _, err := c.VerifyPass(shown, unsafe.String(&room[0], len(room)), testNow); err != nil {
		t.Fatal(err)
	}
	clear(shown) // as a server does with its buffers
	clear(room)
	if got, err := c.VerifyPass(raw, testRoom, testNow); err != nil || got != p {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := c.VerifyPass(shown, testRoom, testNow); err == nil {
		t.Error("the wiped bytes were accepted")
	}
}

func (s *cacheState) entries(now int64) (list []*cacheEntry) {
	s.table.Each(now, func(e **cacheEntry, _ int64) { list = append(list, *e) })
	return list
}

func TestCache_IsBounded(t *testing.T) {
	c := newTestCache(t, 64, hsKey("k1", true))
	for i := range 1000 {
		p := testPass()
		p.IssuedAt = int64(i)
		if _, err := c.VerifyPass(c.Ring().AppendPass(nil, &p), testRoom, testNow); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.state.Load().entries(testNow)); n < 48 || n > 64 {
		t.Errorf("%d tokens are kept of 1000, want at most 64 and most of them", n)
	}
}

func TestCache_KeepsTokensInUse(t *testing.T) {
	c := newTestCache(t, 8, hsKey("k1", true)) // one set
	mint := func(issued, expires int64) []byte {
		p := testPass()
		p.IssuedAt, p.Expires = issued, expires
		return c.Ring().AppendPass(nil, &p)
	}
	show := func(raw []byte, now int64) {
		t.Helper()
		if _, err := c.VerifyPass(raw, testRoom, now); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(raw []byte) bool {
		for _, e := range c.state.Load().entries(testNow) {
			if e.raw == string(raw) {
				return true
			}
		}
		return false
	}
	busy := mint(1, testNow+1000)
	show(busy, testNow)
	for i := range int64(200) {
		show(busy, testNow)
		show(mint(1000+i, testNow+1000), testNow)
		if !kept(busy) {
			t.Fatalf("the token in use was dropped for token %d, which was shown once", i)
		}
	}
	short := mint(5000, testNow+1)
	show(short, testNow)
	show(short, testNow)
	show(mint(5001, testNow+1000), testNow+100)
	if kept(short) || !kept(busy) {
		t.Errorf("an ended token is kept: %v; the one in use: %v", kept(short), kept(busy))
	}
}

func TestCache_IsSafeForConcurrentUse(t *testing.T) {
	c := newTestCache(t, 32, hsKey("k1", true), hsKey("k2", false))
	rings := []*Ring{c.Ring(), mustRing(t, hsKey("k1", false), hsKey("k2", true))}
	var tokens [64][]byte
	var want [64]Pass
	for i := range tokens {
		want[i] = testPass()
		want[i].ID[0] = byte(i)
		tokens[i] = rings[i%2].AppendPass(nil, &want[i])
	}
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				n := (i*7 + g) % len(tokens)
				if got, err := c.VerifyPass(tokens[n], testRoom, testNow); err != nil || got != want[n] {
					errs <- fmt.Errorf("token %d: %+v, %w", n, got, err)
					return
				}
				if i%500 == g {
					c.Swap(rings[(i+g)%2])
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}
