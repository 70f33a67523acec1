package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// read returns the lines of a text as one string, each as number:line, a long one as number:!.
func readLines(r io.Reader, most int) (string, error) {
	l := newLineReader(r, most)
	var b strings.Builder
	for {
		line, long, err := l.next()
		switch {
		case errors.Is(err, io.EOF):
			return b.String(), nil
		case err != nil:
			return b.String(), err
		case long:
			fmt.Fprintf(&b, "%d:! ", l.line)
		default:
			fmt.Fprintf(&b, "%d:%s ", l.line, line)
		}
	}
}

func TestLineReader_SplitsLines(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"", ""},
		{"a", "1:a "},
		{"a\n", "1:a "},
		{"a\nb", "1:a 2:b "},
		{"a\r\nb\r\n", "1:a 2:b "},
		{"\n\n a\n", "1: 2: 3: a "},
		{"\ufeffa\n\ufeffb", "1:a 2:\ufeffb "},
		{"12345678\n", "1:12345678 "},
		{"12345678\r\n", "1:12345678 "},
		{"\ufeff12345678\r\n", "1:12345678 "},
		{"123456789\nb", "1:! 2:b "},
		{"a\n123456789\nb", "1:a 2:! 3:b "},
		{"123456789", "1:! "},
		{strings.Repeat("x", 300_000) + "\nb\n" + strings.Repeat("y", 300_000), "1:! 2:b 3:! "},
		{"a\rb\n", "1:a\rb "},
	} {
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(row.text), "bytes": iotest.OneByteReader(strings.NewReader(row.text)), "with its end": iotest.DataErrReader(strings.NewReader(row.text)),
		} {
			if got, err := readLines(r, 8); got != row.want || err != nil {
				t.Errorf("%s of %.40q: %q, %v, want %q", name, row.text, got, err, row.want)
			}
		}
	}
}

// The part of a line that arrived before a stream broke off is not a line, even if it looks complete.
func TestLines_OfCutStream(t *testing.T) {
	cut := errors.New("cut")
	got, err := readLines(io.MultiReader(strings.NewReader("a\nb\n{}"), iotest.ErrReader(cut)), 8)
	if got != "1:a 2:b " || !errors.Is(err, cut) {
		t.Errorf("%q, %v", got, err)
	}
}

// An overlong line is skipped without being kept in memory.
func TestLines_SkipLongLines(t *testing.T) {
	l := newLineReader(io.LimitReader(endless{}, 1<<30), 1<<10)
	size := len(l.buf)
	_, long, err := l.next()
	if !long || err != nil || len(l.buf) != size {
		t.Errorf("long %v, %v; the buffer grew from %d to %d", long, err, size, len(l.buf))
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, xs), nil }

// xs is copied, since the race detector makes a loop over a gigabyte take 40 seconds.
var xs = bytes.Repeat([]byte{'x'}, 64<<10)

// FuzzLines compares with bytes.Split of the whole text.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"", "a\nb", "a\r\n\r\n", "\ufeffa\n", "123456789\n12345678", "\n\n\n", strings.Repeat("z", 200) + "\nq"} {
		f.Add([]byte(s), 8, 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, most, step int) {
		most, step = 1+abs(most)%100, 1+abs(step)%50
		var want strings.Builder
		parts := bytes.Split(text, []byte{'\n'})
		if len(parts[len(parts)-1]) == 0 {
			parts = parts[:len(parts)-1]
		}
		for i, p := range parts {
			if i == 0 {
				p = bytes.TrimPrefix(p, []byte(mark))
			}
			if p = bytes.TrimSuffix(p, []byte{'\r'}); len(p) > most {
				p = []byte{'!'}
			}
			fmt.Fprintf(&want, "%d:%s ", i+1, p)
		}
		got, err := readLines(&steps{text, step}, most)
		if got != want.String() || err != nil {
			t.Errorf("%q, at most %d, by %d: %q, %v, want %q", text, most, step, got, err, want.String())
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

type steps struct {
	rest []byte
	step int
}

func (s *steps) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.rest[:min(s.step, len(s.rest))])
	s.rest = s.rest[n:]
	return n, nil
}
