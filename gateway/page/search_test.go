package page_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"

	"github.com/anteroom/anteroom/gateway/guard"
	"github.com/anteroom/anteroom/gateway/page"
)

// searcher returns a tab with the function search, of the script as it is or with a change to it.
func searcher(t testing.TB, change func([]byte) []byte) context.Context {
	t.Helper()
	texts, err := page.GuardTexts()
	if err != nil {
		t.Fatal(err)
	}
	scripts := guard.NewScripts(texts)
	script, _, _ := scripts.Find(scripts.Name("en"))
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<link rel="icon" href="data:,"><script>%s</script>`, change(script))
	}))
	t.Cleanup(site.Close)
	ctx := tab(t, nil)
	do(t, ctx, chromedp.Navigate(site.URL))
	return ctx
}

const salt = "0123456789abcdef01234567?expires=1795000300&"

// found returns the result of a search for the hash.
func found(t testing.TB, ctx context.Context, salt string, hash []byte, most, part, parts int) int {
	t.Helper()
	return value[int](t, ctx, fmt.Sprintf(`search({challenge: "%x", salt: %q, maxnumber: %d, part: %d, parts: %d}, () => {})`, hash, salt, most, part, parts))
}

func TestSearch_FindsEachNumber(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{"WebAssembly": withoutPlain(t), "plain": withoutWebAssembly(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := searcher(t, change)
			for _, number := range []int{0, 9999, 10000, 12349, 100000, 987654, 7654321, 10000000, 99999999, 100000000} {
				hash := sha256.Sum256(fmt.Append([]byte(salt), number))
				// Of a thousand workers this one has the number, by its first four digits where they are few.
				head := number
				for head > 9999 {
					head /= 10
				}
				part := number % 1000
				if number > 9999 && number < 1e8 {
					part = (head - 1000) % 1000
				}
				if got := found(t, ctx, salt, hash[:], number, part, 1000); got != number {
					t.Errorf("%d, want %d", got, number)
				}
				if got := found(t, ctx, salt, hash[:], number, (part+1)%1000, 1000); got != -1 {
					t.Errorf("another worker has %d", got)
				}
				if got := found(t, ctx, salt, hash[:], number-1, part, 1000); got != -1 {
					t.Errorf("up to %d there is %d", number-1, got)
				}
			}
			hash := sha256.Sum256([]byte("salt&4321"))
			if got := found(t, ctx, "salt&", hash[:], 5000, 0, 1); got != 4321 {
				t.Errorf("of another salt %d, want 4321", got)
			}
		})
	}
}

// A number whose hash matches only in its first rounds is not accepted.
func TestSearch_ComparesWholeHash(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{"WebAssembly": withoutPlain(t), "plain": withoutWebAssembly(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := searcher(t, change)
			hash := sha256.Sum256([]byte(salt + "123456"))
			// As much more of a and of e at the end, and what a was seven rounds before is the same.
			other := slices.Clone(hash[:])
			for _, at := range []int{0, 16} {
				binary.BigEndian.PutUint32(other[at:], binary.BigEndian.Uint32(other[at:])+12345)
			}
			words := func(hash []byte) string {
				return fmt.Sprintf(`early(Int32Array.from("%x".match(/.{8}/g), word => parseInt(word, 16)))`, hash)
			}
			if !value[bool](t, ctx, words(hash[:])+" === "+words(other)) {
				t.Fatal("this does not test what it should")
			}
			if got := found(t, ctx, salt, other, 200000, 0, 1); got != -1 {
				t.Errorf("%d has another hash", got)
			}
		})
	}
}

// BenchmarkSearch measures the processor time of an average proof at the default difficulty, in one worker.
func BenchmarkSearch(b *testing.B) {
	for name, change := range map[string]func([]byte) []byte{"WebAssembly": withoutPlain(b), "plain": withoutWebAssembly(b)} {
		b.Run(name, func(b *testing.B) {
			ctx := searcher(b, change)
			used := func() (seconds float64) {
				info, err := chromedp.CallBrowser(ctx, systeminfo.GetProcessInfo, cdp.Empty{})
				if err != nil {
					b.Fatal(err)
				}
				for _, process := range info.ProcessInfo {
					if process.Type == "renderer" {
						seconds += process.CPUTime
					}
				}
				return seconds
			}
			found(b, ctx, salt, make([]byte, 32), 5_000_000, 0, 1) // the browser is busy with its own start at first
			before := used()
			for b.Loop() {
				if n := found(b, ctx, salt, make([]byte, 32), 12_000_000, 0, 1); n != -1 {
					b.Fatalf("%d has a hash of zeros", n)
				}
			}
			b.ReportMetric((used()-before)/float64(b.N), "CPUs/place")
		})
	}
}
