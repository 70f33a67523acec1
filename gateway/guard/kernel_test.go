//go:build !race

package guard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"pgregory.net/rapid"
)

// kernel is pow.wasm, with its memory as gen/kernel.go describes it.
type kernel struct {
	t      testing.TB
	memory api.Memory
	find   api.Function
}

const firstWord = 256

func newKernel(t testing.TB) *kernel {
	t.Helper()
	r := wazero.NewRuntime(t.Context())
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	m, err := r.Instantiate(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	return &kernel{t, m.Memory(), m.ExportedFunction("find")}
}

func (k *kernel) set(word int, value uint32) {
	if !k.memory.WriteUint32Le(uint32(word*4), value) {
		k.t.Fatalf("there is no word %d", word)
	}
}

// try returns which four of the words has one that find holds for the number, or how many fours there are.
func (k *kernel) try(words []uint32) int {
	k.t.Helper()
	for i, word := range words {
		k.set(firstWord+i, word)
	}
	out, err := k.find.Call(k.t.Context(), firstWord*4, uint64(firstWord+len(words))*4)
	if err != nil {
		k.t.Fatal(err)
	}
	return (int(out[0])/4 - firstWord) / 4
}

// prepare fills the memory for a block of which word 12 varies.
func (k *kernel) prepare(block [16]uint32) {
	block[12] = 0
	for i, word := range stateAfter(12, block) {
		k.set(i, word)
	}
	// What a word of the schedule shares with those of all numbers is what it is without what comes of word 12.
	var w [64]uint32
	copy(w[:], block[:])
	varies := map[int]bool{12: true}
	for i := 13; i <= 56; i++ {
		if i > 15 {
			for at, f := range map[int]func(uint32) uint32{i - 16: func(x uint32) uint32 { return x }, i - 15: sigma0, i - 7: func(x uint32) uint32 { return x }, i - 2: sigma1} {
				if varies[at] {
					varies[i] = true
				} else {
					w[i] += f(w[at])
				}
			}
		}
		if varies[i] {
			k.set(16+i, constants[i])
			k.set(80+i, w[i])
		} else {
			k.set(16+i, constants[i]+w[i])
			k.set(80+i, 0xbad) // nobody needs it
		}
	}
}

// constants are SHA-256's: of the cube roots of the first primes.
var constants = func() (k [64]uint32) {
	for n, i := int64(2), 0; i < len(k); n++ {
		if big.NewInt(n).ProbablyPrime(0) {
			_, fraction := math.Modf(math.Cbrt(float64(n)))
			k[i] = uint32(fraction * (1 << 32))
			i++
		}
	}
	return k
}()

func rotate(x uint32, n int) uint32 { return bits.RotateLeft32(x, -n) }
func sigma0(x uint32) uint32        { return rotate(x, 7) ^ rotate(x, 18) ^ x>>3 }
func sigma1(x uint32) uint32        { return rotate(x, 17) ^ rotate(x, 19) ^ x>>10 }

// stateAfter is SHA-256's state after a round of one block.
func stateAfter(last int, block [16]uint32) [8]uint32 {
	var w [64]uint32
	copy(w[:], block[:])
	for i := 16; i < 64; i++ {
		w[i] = w[i-16] + sigma0(w[i-15]) + w[i-7] + sigma1(w[i-2])
	}
	s := initial
	for i := 0; i <= last; i++ {
		a, b, c, d, e, f, g, h := s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]
		t := h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (e&f ^ ^e&g) + constants[i] + w[i]
		u := (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + (a&b ^ a&c ^ b&c)
		s = [8]uint32{t + u, a, b, c, d + t, e, f, g}
	}
	return s
}

var initial = [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}

// blockOf is the one block of a text.
func blockOf(text string) (block [16]uint32) {
	b := append([]byte(text), 0x80)
	b = append(b, make([]byte, 64-len(b))...)
	binary.BigEndian.PutUint64(b[56:], uint64(len(text)*8))
	for i := range block {
		block[i] = binary.BigEndian.Uint32(b[i*4:])
	}
	return block
}

// The rounds that the other test takes the target from are those of the standard library.
func TestReferenceRounds_EqualSHA256(t *testing.T) {
	c := testProofs.Challenge(99_999_999, 1_800_000_000)
	var got []byte
	for i, word := range stateAfter(63, blockOf(c.Salt+"1234567")) {
		got = binary.BigEndian.AppendUint32(got, word+initial[i])
	}
	if want := sha256.Sum256([]byte(c.Salt + "1234567")); !bytes.Equal(got, want[:]) {
		t.Errorf("%x, want %x", got, want)
	}
}

// The module finds the one number among those that it tries, in each lane, and none where there is none.
func TestModule_FindsNumber(t *testing.T) {
	k := newKernel(t)
	text := func(salt string, head, digits, n int) string { return fmt.Sprintf("%s%d%0*d", salt, head, digits, n) }
	var tables [5][]uint32 // of words 12, which are the same behind all salts and heads
	for digits := 1; digits < len(tables); digits++ {
		many := int(math.Pow10(digits))
		tables[digits] = make([]uint32, (many+3)/4*4)
		for n := range many {
			tables[digits][n] = blockOf(text(strings.Repeat("x", 44), 1000, digits, n))[12]
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		salt := rapid.StringMatching(`[0-9a-f]{24}\?expires=[0-9]{10}&`).Draw(t, "salt")
		head := rapid.IntRange(1000, 9999).Draw(t, "head")
		digits := rapid.IntRange(1, 4).Draw(t, "digits")
		number := rapid.IntRange(0, int(math.Pow10(digits))-1).Draw(t, "number")
		words, text := slices.Clone(tables[digits]), text(salt, head, digits, number)
		k.prepare(blockOf(text))
		target := stateAfter(56, blockOf(text))[0]
		k.set(8, target)
		if got := k.try(words); got != number/4 {
			t.Fatalf("%s: in four %d of %d, want %d", text, got, len(words)/4, number/4)
		}
		words[number] = 0
		if got := k.try(words); got != len(words)/4 {
			t.Fatalf("%s: in four %d of %d, and it is in none", text, got, len(words)/4)
		}
	})
}
