package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/bench/visitor"
)

// Whatever is put on a shelf comes back as it was, and says the same of its place.
func TestShelfGivesBackWhatItGot(t *testing.T) {
	text := func(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3*perBlock).Draw(t, "slots")
		s := newShelf(n)
		have := map[int]string{}
		for k := range rapid.IntRange(1, 30).Draw(t, "tokens") {
			i := rapid.IntRange(0, n-1).Draw(t, "slot")
			payload, _ := json.Marshal(map[string]any{
				"aud": rapid.StringN(0, 90, 90).Draw(t, "room"), "jti": fmt.Sprintf("%022d", k), "ord": rapid.Int64Range(1, 1<<53).Draw(t, "order"),
			})
			token := rapid.SampledFrom([]string{
				"h1." + text(payload) + "." + text(bytes.Repeat([]byte{byte(k)}, 32)),
				"h2." + text(payload) + "." + text(bytes.Repeat([]byte{byte(k)}, 64)),
				"h1." + text(payload) + "." + text(make([]byte, 300)), // too long a signature
				"h1." + text(payload) + ".AB",                         // not what an encoder writes
				"h1." + text(payload) + "=.AA",
				fmt.Sprint("no token ", k),
			}).Draw(t, "token")
			s.put(i, token)
			have[i] = token
		}
		for i := range n {
			if got := string(s.add(nil, i)); got != have[i] {
				t.Fatalf("slot %d gives %q, got %q", i, got, have[i])
			}
			c, err := visitor.Decode(have[i])
			if p := s.place(i); err == nil && (string(p.ID[:]) != c.ID || p.Order != *c.Order || p.Confirmed != c.Confirmed()) {
				t.Fatalf("slot %d: %+v, its token says %+v", i, p, c)
			}
		}
	})
}

func TestShelfIsSmall(t *testing.T) {
	s := newShelf(perBlock)
	const signature = "8JDEIDKvr_Op0iCY4HjPzdry2HIjEEirFqTSBldz9l4"
	size := 0
	for i := range perBlock {
		payload := fmt.Sprintf(`{"iss":"anteroom","aud":"sale","jti":"%022d","iat":1795290695,"exp":1795377095,"ord":1795290695000633,"fn":1}`, i)
		grown := strings.TrimSuffix(payload, `"fn":1}`) + `"seen":1795290695013369,"ep":"1.e31095ed4eae","fn":1}`
		s.put(i, token64(payload, signature))
		s.put(i, token64(grown, signature))
		size += len(token64(grown, signature))
	}
	if len(s.odd) > 0 || s.size()*10 > size*8 {
		t.Errorf("%d of %d tokens do not fit their slots; %d bytes for tokens of %d", len(s.odd), perBlock, s.size(), size)
	}
}

func token64(payload, signature string) string {
	return "eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIiwidHlwIjoid2FpdCtqd3QifQ." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + "." + signature
}

func TestTokensFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	var all []string
	shelves := []*shelf{newShelf(5), newShelf(4)}
	for i := range 9 {
		all = append(all, token(fmt.Sprint("v", i), int64(i)))
		if i != 8 { // one has left
			shelves[i%2].put(i/2, all[i])
		}
	}
	all = all[:8]
	if n, err := saveTokens(path, shelves); n != 8 || err != nil {
		t.Fatalf("%d written, %v", n, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want a file for its owner alone", info.Mode(), err)
	}
	for _, threads := range []int{1, 3, 8, 11} {
		read, total, err := loadTokens(path, threads)
		if err != nil || total != 8 || len(read) != threads {
			t.Fatalf("%d threads: %d tokens on %d shelves, %v", threads, total, len(read), err)
		}
		var got []string
		for _, s := range read[:min(threads, 8)] {
			for i := range s.slots {
				got = append(got, string(s.add(nil, i)))
			}
		}
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(all)); !slices.Equal(got, want) {
			t.Errorf("%d threads: %q, want %q", threads, got, want)
		}
		for i, s := range read[min(threads, 8):] {
			if s.slots != 1 || len(s.add(nil, 0)) == 0 {
				t.Errorf("shelf %d of %d is empty", 8+i, threads)
			}
		}
	}
	for name, text := range map[string]string{"holds no token": "\n\n", "token 2: not a token": token("v", 1) + "\nx.y\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := loadTokens(path, 2); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, want %q", text, err, name)
		}
	}
}
