package client

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// heard returns the events of a stream, one a line.
func heard(r io.Reader) string {
	var b strings.Builder
	for e := newEvents(r); ; {
		name, data, err := e.next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			return b.String() + err.Error() + "\n"
		}
		fmt.Fprintf(&b, "%s %q\n", name, data)
	}
}

func TestSSE_ParsesEvents(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, stream, want string }{
		{"one", "data: {}\n\n", "message \"{}\"\n"},
		{"named", "event: progress\ndata:{}\n\n", "progress \"{}\"\n"},
		{"a name holds for one event", "event: a\ndata: 1\n\ndata: 2\n\n", "a \"1\"\nmessage \"2\"\n"},
		{"carriage returns", "event: a\r\ndata: 1\r\n\r\n", "a \"1\"\n"},
		{"data of two lines", "data: 1\ndata: 2\n\n", "message \"1\\n2\"\n"},
		{"comments, ids and retries", ": hello\n\nid: 7\nretry: 100\ndata: 1\n\n", "message \"1\"\n"},
		{"an event without data", "event: a\n\ndata: 1\n\n", "message \"1\"\n"},
		{"only the first blank is not data", "data:  1 \n\n", "message \" 1 \"\n"},
		{"a field without a value", "data\n\n", "message \"\"\n"},
		{"the end cuts an event off", "data: 1\n\ndata: 2\n", "message \"1\"\n"},
		{"too much", "data: " + strings.Repeat("x", maxEvent) + "\n\n", errLongLine.Error() + "\n"},
		{"too much in pieces", strings.Repeat("data: "+strings.Repeat("x", maxEvent/4)+"\n", 5) + "\n", errLongLine.Error() + "\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got := heard(strings.NewReader(row.stream)); got != row.want {
				t.Errorf("got\n%swant\n%s", got, row.want)
			}
		})
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("event: progress\ndata: {\"id\":\"g\"}\n\n: beat\n\n")
	f.Add("data: 1\r\ndata\r\n\r\ndata:")
	f.Fuzz(func(t *testing.T, stream string) {
		whole := heard(strings.NewReader(stream))
		if pieces := heard(iotest.OneByteReader(strings.NewReader(stream))); pieces != whole {
			t.Errorf("in one piece\n%sbyte by byte\n%s", whole, pieces)
		}
		if n := strings.Count(whole, "\n"); n > strings.Count(stream, "data") {
			t.Errorf("%d events of %q", n, stream)
		}
	})
}
