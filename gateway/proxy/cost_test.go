package proxy

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/gateway/http1"
	"github.com/anteroom/anteroom/gateway/wire"
)

// names returns a list of n different field names.
func names(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ", x-%d", i)
	}
	return b.String()[2:]
}

// Each row is the largest number of elements that a request may have, and one more with its refusal.
var costs = []struct {
	name       string
	most, over string
	refusal    string // with what came with the header; else the body's
}{
	{"names in Connection", "GET / HTTP/1.1\r\nHost: a\r\nConnection: " + names(32) + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: " + names(33) + "\r\n\r\n", http1.CodeNames},
	{"empty elements in Connection", "GET / HTTP/1.1\r\nHost: a\r\nConnection: " + strings.Repeat(",", 32) + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: " + strings.Repeat(",", 33) + "\r\n\r\n", http1.CodeNames},
	{"names over several lines of Connection", "GET / HTTP/1.1\r\nHost: a\r\nConnection: " + names(16) + "\r\nConnection: " + names(16) + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: " + names(16) + "\r\nConnection: " + names(17) + "\r\n\r\n", http1.CodeNames},
	{"names in Trailer", trailing(names(32), "x-1: 1\r\n"), trailing(names(33), "x-1: 1\r\n"), http1.CodeNames},
	{"names over several lines of Trailer", trailing(names(16)+"\r\nTrailer: "+names(16), "x-1: 1\r\n"),
		trailing(names(16)+"\r\nTrailer: "+names(17), "x-1: 1\r\n"), http1.CodeNames},
	{"trailer lines", trailing("x-1", strings.Repeat("x-1: 1\r\n", 100)), trailing("x-1", strings.Repeat("x-1: 1\r\n", 101)), http1.CodeFraming},
	{"header lines", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("x: 1\r\n", 99) + "\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("x: 1\r\n", 100) + "\r\n", http1.CodeHeaderLarge},
	{"bytes of chunk extensions beyond the data", chunksOf(strings.Repeat("1;"+strings.Repeat("e", 106)+"\r\nx\r\n", 40)),
		chunksOf(strings.Repeat("1;"+strings.Repeat("e", 106)+"\r\nx\r\n", 42)), http1.CodeFraming},
}

func trailing(names, lines string) string {
	return "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: " + names + "\r\n\r\n0\r\n" + lines + "\r\n"
}

func chunksOf(chunks string) string {
	return "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + "0\r\n\r\n"
}

// Elements that a request may repeat have limits, so that no two of them multiply.
func TestRequestLists_AreCapped(t *testing.T) {
	o := newRecorder(t, answering(okAnswer))
	g := newGate(t, to(o), wire.Limits{}, nil)
	for i, row := range costs {
		c := g.dial()
		c.Send(row.most)
		if status, _, body := c.Answer("POST"); status != 200 {
			t.Errorf("%s: the most: %d %s, want 200", row.name, status, body)
		}
		if n := len(o.requests()); n != i+1 {
			t.Fatalf("%s: the origin saw %d requests, want %d", row.name, n, i+1)
		}
		c = g.dial()
		c.Send(row.over)
		if status, _, body := c.Answer("POST"); status < 400 || !directly && body != row.refusal {
			t.Errorf("%s: the least beyond: %d %s, want %s", row.name, status, body, row.refusal)
		}
		if n := len(o.requests()); n != i+1 {
			t.Fatalf("%s: the origin saw what is refused", row.name)
		}
	}
}

// An origin may list any number of names: each is read once, and found whatever their number.
func TestOriginLists_AreReadOnce(t *testing.T) {
	many := names(3000)
	raw := []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: " + many + "\r\nConnection: y, " + names(200) + "\r\nX-7: a\r\nY: b\r\nZ: c\r\n\r\n")
	var a http1.ResponseHeader
	if n, err := a.Scan(raw); err != nil || n != len(raw) {
		t.Fatal(n, err)
	}
	if n := len(a.Announced.Hashes); n != 3000 {
		t.Errorf("%d names are announced, want 3000", n)
	}
	for _, name := range []string{"x-0", "X-1500", "x-2999"} {
		if !a.Announced.Has([]byte(name)) {
			t.Errorf("%s is not announced", name)
		}
	}
	if a.Announced.Has([]byte("x-3000")) {
		t.Error("x-3000 is announced")
	}
	x := &response{a: a}
	if out := string(x.appendUnchanged(nil, frameChunked)); strings.Contains(out, "X-7:") || strings.Contains(out, "Y: b") || !strings.Contains(out, "Z: c") {
		t.Errorf("fields that Connection names were passed on: %.200s", out)
	}
	if again := a.Announced.Emptied(); cap(again.Hashes) > 0 {
		t.Error("the memory of a long list is kept")
	}
	lines := bytes.Repeat([]byte("x-7: 1\r\nno: 1\r\n"), 250)
	if out := http1.AppendTrailers(nil, lines, a.Announced.Has); len(out) != 250*len("x-7: 1\r\n") {
		t.Errorf("%d bytes of trailers", len(out))
	}
}
