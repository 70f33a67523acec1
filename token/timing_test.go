package token

import (
	"fmt"
	"testing"
)

func TestToken_DoesNotAllocate(t *testing.T) {
	r := mustRing(t, hsKey("k1", true))
	c := NewCache(64)
	c.Swap(r)
	w, p := testWaiting(), testPass()
	bare := Waiting{ID: testID(1), Room: testRoom, Order: 1, IssuedAt: testNow, Expires: testNow + 60}
	plain, usual := p, w
	plain.Bind, usual.AddrHash, usual.Bind = "", "", ""
	rawUsual := r.AppendWaiting(nil, &usual)
	rawWaiting, rawBare, rawPass, rawPlain := r.AppendWaiting(nil, &w), r.AppendWaiting(nil, &bare), r.AppendPass(nil, &p), r.AppendPass(nil, &plain)
	forged := append([]byte(nil), rawPass...)
	forged[len(forged)-20] ^= 1
	long := make([]byte, 1<<20)
	dst := make([]byte, 0, 1024)
	es := newTestCache(t, 64, esKey("k1", true))
	esWaiting, esPass := es.Ring().AppendWaiting(nil, &w), es.Ring().AppendPass(nil, &p)
	for _, row := range []struct {
		name   string
		pooled bool // needs sync.Pool to keep what it is given
		want   float64
		run    func()
	}{
		{"pass from the cache", false, 0, func() { c.VerifyPass(rawPass, testRoom, testNow) }},
		{"waiting token", true, 0, func() { c.VerifyWaiting(rawUsual, testRoom, testNow) }},
		{"ES256 waiting token from the cache", false, 0, func() { es.VerifyWaiting(esWaiting, testRoom, testNow) }},
		{"ES256 pass from the cache", false, 0, func() { es.VerifyPass(esPass, testRoom, testNow) }},
		{"a megabyte", false, 0, func() { r.VerifyPass(long, testRoom, testNow) }},
		{"a forged pass", true, 0, func() { c.VerifyPass(forged, testRoom, testNow) }},
		{"pass", true, 0, func() { r.VerifyPass(rawPlain, testRoom, testNow) }},
		{"bound pass: its bnd", true, 1, func() { r.VerifyPass(rawPass, testRoom, testNow) }},
		{"waiting token never enrolled", true, 0, func() { r.VerifyWaiting(rawBare, testRoom, testNow) }},
		{"waiting token: its ah, bnd", true, 2, func() { r.VerifyWaiting(rawWaiting, testRoom, testNow) }},
		{"signing a waiting token", true, 0, func() { r.AppendWaiting(dst, &w) }},
		{"signing a pass", true, 0, func() { r.AppendPass(dst, &p) }},
	} {
		if row.pooled && raceDetector {
			continue
		}
		if got := testing.AllocsPerRun(200, row.run); got > row.want {
			t.Errorf("%s: %v allocations, want %v", row.name, got, row.want)
		}
	}
}

func BenchmarkSignWaiting(b *testing.B) {
	for _, key := range oneOfEach() {
		r, w, dst := mustRing(b, key), testWaiting(), make([]byte, 0, 1024)
		b.Run(key.Alg, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				dst = r.AppendWaiting(dst[:0], &w)
			}
		})
	}
}

func BenchmarkSignPass(b *testing.B) {
	for _, key := range oneOfEach() {
		r, p, dst := mustRing(b, key), testPass(), make([]byte, 0, 1024)
		b.Run(key.Alg, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				dst = r.AppendPass(dst[:0], &p)
			}
		})
	}
}

func BenchmarkVerifyPass(b *testing.B) {
	for _, key := range oneOfEach() {
		r, p := mustRing(b, key), testPass()
		p.Bind = ""
		raw := r.AppendPass(nil, &p)
		b.Run(key.Alg, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.VerifyPass(raw, testRoom, testNow); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkVerifyWaiting(b *testing.B) {
	for _, key := range oneOfEach() {
		r, w := mustRing(b, key), testWaiting()
		raw := r.AppendWaiting(nil, &w)
		b.Run(key.Alg, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.VerifyWaiting(raw, testRoom, testNow); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A waiting token of a key pair is verified once and then found in the cache.
func BenchmarkCachedWaiting(b *testing.B) {
	for _, key := range oneOfEach() {
		c, w := newTestCache(b, 1<<10, key), testWaiting()
		raw := c.Ring().AppendWaiting(nil, &w)
		b.Run(key.Alg, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.VerifyWaiting(raw, testRoom, testNow); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCachedPass(b *testing.B) {
	for _, n := range []int{1, 10000} {
		c := newTestCache(b, 1<<15, hsKey("k1", true))
		tokens := make([][]byte, n)
		for i := range tokens {
			p := testPass()
			p.IssuedAt = int64(i)
			tokens[i] = c.Ring().AppendPass(nil, &p)
		}
		b.Run(fmt.Sprintf("of %d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, err := c.VerifyPass(tokens[i%n], testRoom, testNow); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
