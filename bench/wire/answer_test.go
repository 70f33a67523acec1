package wire

import (
	"errors"
	"strings"
	"testing"
)

// feed gives the answer in pieces of n bytes.
func feed(a *Answer, text string, n int) (done bool, rest int, err error) {
	a.begin()
	for len(text) > 0 {
		if done {
			return done, len(text), nil
		}
		m := copy(a.space(), text[:min(n, len(text))])
		text = text[m:]
		if done, err = a.add(m); err != nil {
			return done, len(text), err
		}
	}
	return done || a.ended(), 0, nil
}

func TestAnswersInPiecesOfAnySize(t *testing.T) {
	long := strings.Repeat("y", 3*kept)
	for name, tt := range map[string]struct {
		text, body, room, pass string
		status                 int
		close                  bool
	}{
		"length":             {text: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},
		"ours":               {text: "HTTP/1.1 202 x\r\nX-Waiting-Room: waiting\r\nx-waiting-room-pass:  p \r\ncontent-length:0\r\n\r\n", status: 202, room: "waiting", pass: "p"},
		"no body":            {text: "HTTP/1.1 204 No Content\r\n\r\n", status: 204},
		"not modified":       {text: "HTTP/1.1 304 \r\nContent-Length: 5\r\n\r\n", status: 304},
		"chunked":            {text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: 1\r\n\r\n", status: 200, body: "abc0123456789"},
		"chunked, empty":     {text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: 200},
		"until the end":      {text: "HTTP/1.1 200 OK\r\n\r\nto the end", status: 200, body: "to the end", close: true},
		"told to close":      {text: "HTTP/1.1 400 Bad\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", status: 400, close: true},
		"an old server":      {text: "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", status: 200, body: "x", close: true},
		"a word in between":  {text: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", status: 200, body: "ok"},
		"too long to keep":   {text: "HTTP/1.1 200 OK\r\nContent-Length: 196608\r\n\r\n" + long, status: 200},
		"… in one chunk":     {text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n30000\r\n" + long + "\r\n0\r\n\r\n", status: 200},
		"a reason of none":   {text: "HTTP/1.1 201\r\nContent-Length: 0\r\n\r\n", status: 201},
		"a body like a head": {text: "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\nHTTP/1.1 404 X\r\nA: 1\r\n", status: 200, body: "HTTP/1.1 404 X\r\nA: 1\r\n"[:21]},
	} {
		for _, n := range []int{1, 2, 3, 7, 64, 5000, 1 << 20} {
			var a Answer
			if n < 64 && len(tt.text) > kept {
				continue
			}
			text := tt.text
			if name == "a body like a head" {
				text = text[:len("HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n")+21]
			}
			done, rest, err := feed(&a, text, n)
			if !done || err != nil || rest > 0 {
				t.Errorf("%s, by %d: done %v, %d left, %v", name, n, done, rest, err)
				continue
			}
			if a.Status != tt.status || string(a.Room) != tt.room || string(a.Pass) != tt.pass || a.Close != tt.close {
				t.Errorf("%s, by %d: %d, room %q, pass %q, close %v", name, n, a.Status, a.Room, a.Pass, a.Close)
			}
			if len(tt.text) < kept && string(a.Body()) != tt.body {
				t.Errorf("%s, by %d: body %q, want %q", name, n, a.Body(), tt.body)
			}
		}
	}
}

func TestWhatIsNoAnswer(t *testing.T) {
	for _, text := range []string{
		"HTTP/2.0 200 OK\r\n\r\n",
		"HTTP/1.1 2x0 OK\r\n\r\n",
		"HTTP/1.1 099 OK\r\n\r\n",
		"ICY 200 OK it is not\r\n\r\n",
		"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nxy",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*kept),
	} {
		var a Answer
		if _, _, err := feed(&a, text, len(text)); !errors.Is(err, ErrAnswer) {
			t.Errorf("%.60q: %v", text, err)
		}
	}
}
