package client

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// read returns what a lineReader returns, one line for each call.
func read(r io.Reader, longest int) string {
	var b strings.Builder
	for l, line := newLineReader(r, longest), []byte(nil); ; {
		var n int64
		var err error
		line, n, err = l.append(line[:0])
		switch {
		case errors.Is(err, io.EOF):
			return b.String()
		case errors.Is(err, errLongLine):
			fmt.Fprintf(&b, "%d long %q\n", n, line)
		case err != nil:
			return b.String() + err.Error() + "\n"
		default:
			fmt.Fprintf(&b, "%d %q\n", n, line)
		}
	}
}

func TestLines_CutsSource(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, row := range []struct {
		name   string
		source io.Reader
		want   string
	}{
		{"nothing", strings.NewReader(""), ""},
		{"two lines", strings.NewReader("a\nbc\n"), "2 \"a\\n\"\n3 \"bc\\n\"\n"},
		{"the last has no end", strings.NewReader("a\nbc"), "2 \"a\\n\"\n2 \"bc\\n\"\n"},
		{"blank lines count", strings.NewReader("\n\r\na\n"), "1 \"\\n\"\n2 \"\\r\\n\"\n2 \"a\\n\"\n"},
		{"a long line is skipped", strings.NewReader("1234567890\nb\n"), "11 long \"\\n\"\n2 \"b\\n\"\n"},
		{"a long last line too", strings.NewReader("a\n1234567890"), "2 \"a\\n\"\n10 long \"\\n\"\n"},
		{"an error is not a line", io.MultiReader(strings.NewReader("a\nbc"), iotest.ErrReader(broken)), "2 \"a\\n\"\nbroken\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got := read(row.source, 8); got != row.want {
				t.Errorf("got\n%swant\n%s", got, row.want)
			}
		})
	}
	if got, want := read(strings.NewReader(strings.Repeat("x", 200_000)+"\nb\n"), 300_000), fmt.Sprintf("200001 %q\n2 \"b\\n\"\n", strings.Repeat("x", 200_000)+"\n"); got != want {
		t.Error("a line longer than the buffer is not read whole")
	}
}

func FuzzLines(f *testing.F) {
	f.Add("a\nb\n", 10)
	f.Add("\n\n1234567890\r\nx", 4)
	f.Fuzz(func(t *testing.T, source string, longest int) {
		longest = max(1, min(longest, 1<<20))
		var joined strings.Builder
		var bytes int64
		for l := newLineReader(iotest.OneByteReader(strings.NewReader(source)), longest); ; {
			line, n, err := l.append(nil)
			if errors.Is(err, io.EOF) {
				break
			}
			bytes += n
			switch {
			case errors.Is(err, errLongLine) && string(line) == "\n" && n > int64(longest):
				joined.WriteString(source[bytes-n : bytes])
				if bytes == int64(len(source)) && !strings.HasSuffix(source, "\n") {
					joined.WriteByte('\n')
				}
			case err != nil:
				t.Fatal(err)
			default:
				joined.Write(line)
			}
		}
		want := source
		if want != "" && !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		if joined.String() != want || bytes != int64(len(source)) {
			t.Errorf("%d bytes, %q; want %d, %q", bytes, joined.String(), len(source), want)
		}
	})
}
