package main

import (
	"bufio"
	"strings"
	"testing"
)

func TestReadMessage_FindsAmbiguity(t *testing.T) {
	const ok = "Host: site.test\r\n"
	for name, tt := range map[string]struct {
		text, body string
		answer     bool
		complete   bool
		problem    string
	}{
		"plain":                  {text: "GET /x HTTP/1.1\r\n" + ok + "\r\n", complete: true},
		"length":                 {text: "POST / HTTP/1.1\r\n" + ok + "Content-Length: 2\r\n\r\nab", body: "ab", complete: true},
		"chunks":                 {text: "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: chunked\r\n\r\n2;x=\"y\"\r\nab\r\n0\r\nT: 1\r\n\r\n", body: "ab", complete: true},
		"cut":                    {text: "POST / HTTP/1.1\r\n" + ok + "Content-Length: 3\r\n\r\nab", body: "ab"},
		"cut before the end":     {text: "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", body: "ab"},
		"both framings":          {text: "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n", complete: true, problem: "and Content-Length"},
		"a twin of a framing":    {text: "POST / HTTP/1.1\r\n" + ok + "Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", body: "", complete: true, problem: "and Content-Length"},
		"leading zeros":          {text: "POST / HTTP/1.1\r\n" + ok + "Content-Length: 02\r\n\r\nab", body: "ab", complete: true, problem: "Content-Length"},
		"two lengths":            {text: "POST / HTTP/1.1\r\n" + ok + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab", body: "ab", complete: true, problem: "Content-Length"},
		"bare LF":                {text: "GET / HTTP/1.1\n" + ok + "\r\n", complete: true, problem: "first line"},
		"folded":                 {text: "GET / HTTP/1.1\r\n" + ok + "X: a\r\n b\r\n\r\n", complete: true, problem: "header line"},
		"NUL":                    {text: "GET / HTTP/1.1\r\n" + ok + "X: a\x00\r\n\r\n", complete: true, problem: "header line"},
		"beyond ASCII":           {text: "GET / HTTP/1.1\r\n" + ok + "X: \xe9\r\n\r\n", complete: true},
		"no Host":                {text: "GET / HTTP/1.1\r\n\r\n", complete: true, problem: "Host"},
		"a port too high":        {text: "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", complete: true, problem: "Host"},
		"an address":             {text: "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", complete: true},
		"version":                {text: "GET / HTTP/1.2\r\n" + ok + "\r\n", complete: true, problem: "first line"},
		"fragment":               {text: "GET /#a HTTP/1.1\r\n" + ok + "\r\n", complete: true, problem: "first line"},
		"blank after chunk size": {text: "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: chunked\r\n\r\n2 \r\nab\r\n0\r\n\r\n", body: "ab", complete: true, problem: "chunk size"},
		"NUL in an extension":    {text: "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: chunked\r\n\r\n2;\x00\r\nab\r\n0\r\n\r\n", body: "ab", complete: true, problem: "chunk size"},
		"longer than its chunk":  {text: "POST / HTTP/1.1\r\n" + ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", body: "ab", problem: "after a chunk"},
		"an answer to its end":   {answer: true, text: "HTTP/1.1 200 OK\r\n\r\nab", body: "ab", complete: true},
		"an answer without body": {answer: true, text: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", complete: true},
		"no answer":              {answer: true, text: "hello\r\n\r\n", complete: true, problem: "first line"},
	} {
		m, _ := readMessage(bufio.NewReader(strings.NewReader(tt.text)), !tt.answer)
		if name == "a twin of a framing" { // either reading may be right; the case counts because there are two
			tt.complete = m.complete
		}
		if string(m.body) != tt.body || m.complete != tt.complete {
			t.Errorf("%s: body %q, complete %v", name, m.body, m.complete)
		}
		if all := strings.Join(m.problems, "; "); (tt.problem == "") != (all == "") || !strings.Contains(all, tt.problem) {
			t.Errorf("%s: problems %q, want %q", name, all, tt.problem)
		}
	}
}

func TestJudge_FindsBrokenPromises(t *testing.T) {
	whole := &message{first: "POST / HTTP/1.1", header: "POST / HTTP/1.1\r\n", body: []byte("hello"), complete: true}
	twofold := &message{first: "POST / HTTP/1.1", complete: true, problems: []string{"two lengths"}}
	inner := &message{first: "GET /smuggled HTTP/1.1", complete: true}
	cut := &message{first: "POST / HTTP/1.1"}
	const ok, no = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
	for _, tt := range []struct {
		name   string
		c      abuse
		strict bool
		got    []*message
		said   string
		why    string
	}{
		{name: "refused", c: abuse{want: refuse}, said: no},
		{name: "cut off", c: abuse{want: refuse}, got: []*message{cut}},
		{name: "forwarded", c: abuse{want: refuse}, got: []*message{whole}, why: "forwarded: "},
		{name: "a success that is none", c: abuse{want: refuse}, got: []*message{cut}, said: ok, why: "served without the origin"},
		{name: "made clean", c: abuse{want: clean}, got: []*message{whole}, said: ok},
		{name: "made clean, by the gateway", c: abuse{want: clean}, strict: true, got: []*message{whole}, said: ok, why: "forwarded: "},
		{name: "one reading", c: abuse{want: either, body: "hello"}, got: []*message{whole}, said: ok},
		{name: "two readings", c: abuse{want: either}, got: []*message{twofold}, said: ok, why: "ambiguously: two lengths"},
		{name: "another body", c: abuse{want: either, body: "hell"}, got: []*message{whole}, said: ok, why: "its body"},
		{name: "a header that may not be there", c: abuse{want: either, absent: "POST"}, got: []*message{whole}, why: `"POST" was forwarded`},
		{name: "smuggled", c: abuse{want: either}, got: []*message{whole, inner}, said: ok, why: "executed"},
		{name: "served", c: abuse{want: serve, send: "X-Case:"}, got: []*message{whole}, said: ok},
		{name: "refused, but good", c: abuse{want: serve, send: "X-Case:"}, said: no, why: "0 of 1 requests"},
		{name: "one of two", c: abuse{want: serve, send: "X-Case: X-Case:"}, got: []*message{whole, whole}, said: ok, why: "1 of 2 answers"},
		{name: "502", c: abuse{want: bad}, got: []*message{whole}, said: "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"},
		{name: "a response that is cut", c: abuse{want: bad, body: "hello"}, said: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"},
		{name: "a response of one reading", c: abuse{want: bad, body: "ok"}, said: ok},
		{name: "a response with another body", c: abuse{want: bad, body: "hello"}, said: ok, why: "delivered as"},
		{name: "a response of two readings", c: abuse{want: bad, body: "ok"}, said: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\nok", why: "ambiguously"},
		{name: "what came after it", c: abuse{want: bad, body: "ok"}, said: ok + "POISON", why: "after the end of a response"},
	} {
		if why := judge(tt.c, tt.strict, tt.got, tt.said); (why == "") != (tt.why == "") || !strings.Contains(why, tt.why) {
			t.Errorf("%s: %q, want %q", tt.name, why, tt.why)
		}
	}
}

func TestCases_HaveUniqueNames(t *testing.T) {
	names := map[string]bool{}
	for _, c := range cases() {
		if names[c.name] || !strings.Contains(c.send, "§") {
			t.Errorf("%q: its name is taken, or its requests carry no number", c.name)
		}
		names[c.name] = true
	}
	if len(names) < 82 {
		t.Errorf("%d cases", len(names))
	}
	if n := len(strings.NewReplacer("§", "000").Replace(pad(808))); n != 808 {
		t.Errorf("a pad of %d bytes", n)
	}
}
