package accesslog

import (
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// linesOnly is a writer that refuses parts of lines.
type linesOnly struct {
	t *testing.T
	n int
}

func (w *linesOnly) Write(p []byte) (int, error) {
	if !bytes.HasSuffix(p, []byte("\n")) {
		w.t.Errorf("a write ends inside a line: …%q", p[max(0, len(p)-40):])
	}
	w.n += bytes.Count(p, []byte("\n"))
	return len(p), nil
}

// The program's log may share the output, so a write never ends inside a line.
func TestLog_WritesWholeLines(t *testing.T) {
	for _, combined := range []bool{false, true} {
		w := &linesOnly{t: t}
		var l Log
		l.Set(Options{Output: w, Combined: combined, Sample: 1})
		want := 0
		for i := range 3 * bufferSize / 100 {
			l.Write(&Entry{At: time.Unix(int64(i), 0), Method: []byte("GET"), Target: []byte("/" + strings.Repeat("a", i%97)), Status: 200})
			want++
		}
		l.Write(&Entry{Method: []byte("GET"), Target: []byte("/" + strings.Repeat("a", 2*bufferSize)), Status: 200})
		l.flush()
		if want++; w.n != want {
			t.Errorf("combined=%v: %d lines, want %d", combined, w.n, want)
		}
	}
}

// The length of a line is bounded whatever the client sends, and a cut does not reveal secrets.
func TestLog_CutsLongFields(t *testing.T) {
	long := "/" + strings.Repeat("?a=&token=secret", 1000)
	jwt := []byte("/p/eyJ" + strings.Repeat("a", 5000) + ".secret")
	for _, row := range []struct{ name, target, want string }{
		{"a query", long, "token=***"}, {"a token in the path", string(jwt), "/p/eyJaaa"},
	} {
		e := Entry{Method: []byte("GET"), Host: []byte(strings.Repeat("h", 9000)), Target: []byte(row.target), Referer: []byte(row.target), UserAgent: []byte(strings.Repeat("u", 9000))}
		for format, line := range map[string]string{"json": string(e.appendJSON(nil, false)), "combined": string(e.appendCombined(nil, false))} {
			if strings.Contains(line, "secret") || !strings.Contains(line, row.want) || strings.Count(line, cutMark) < 3 {
				t.Errorf("%s, %s: %.300s", row.name, format, line)
			}
			if most := 4*(maxField+len(cutMark)) + 1000; len(line) > most {
				t.Errorf("%s, %s: a line of %d bytes, want at most %d", row.name, format, len(line), most)
			}
		}
	}
}

// Composing a line needs neither the lock nor an allocation.
func TestLog_ComposesOutsideTheLock(t *testing.T) {
	var l Log
	l.Set(Options{Output: io.Discard, Sample: 1})
	e := Entry{Addr: netip.MustParseAddr("192.0.2.7"), Method: []byte("GET"), Host: []byte("shop.test"), Outcome: "proxied",
		Target: []byte("/a?" + strings.Repeat("tok=eyJ&", 1000)), Referer: []byte("/a?" + strings.Repeat("a=&", 3000))}
	for _, combined := range []bool{false, true} {
		l.Set(Options{Output: io.Discard, Sample: 1, Combined: combined})
		if n := testing.AllocsPerRun(100, func() { l.Write(&e) }); n > 0 && !raceEnabled {
			t.Errorf("combined=%v: %v allocations a line", combined, n)
		}
	}
	l.mu.Lock() // line would deadlock if it took the lock
	if len(l.line(&e, &lineBuffer{})) == 0 {
		t.Error("no line is composed")
	}
	l.mu.Unlock()
	l.Set(Options{})
	l.Write(&e) // without an output
}

// A request is one line with its fields in order, whatever bytes a visitor sends.
func TestLog_EscapesHostileBytes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for _, row := range []struct{ name, agent, json, combined string }{
		{"plain", "curl/8", "curl/8", "curl/8"},
		{"a line break", "a\r\n1.2.3.4 - - [x] \"GET / HTTP/1.1\" 200", "a\r\n1.2.3.4 - - [x] \"GET / HTTP/1.1\" 200", `a\x0d\x0a1.2.3.4 - - [x] \x22GET / HTTP/1.1\x22 200`},
		{"the end of a field", `","status":500,"x":"\`, `","status":500,"x":"\`, `\x22,\x22status\x22:500,\x22x\x22:\x22\x5c`},
		{"terminal colours", "\x1b[31mred\x7f", "\x1b[31mred\x7f", `\x1b[31mred\x7f`},
		{"not UTF-8", "\xff\xc3", "\ufffd\ufffd", `\xff\xc3`},
		{"a letter beyond ASCII", "é", "é", `\xc3\xa9`},
	} {
		e := Entry{At: at, Took: time.Second, Addr: netip.MustParseAddr("192.0.2.77"), Method: []byte("GET"), Host: []byte("shop.test"),
			Target: []byte("/"), Protocol: "HTTP/1.1", UserAgent: []byte(row.agent), Referer: []byte(row.agent), Outcome: "proxied", Status: 200, Bytes: 5}
		line := string(e.appendJSON(nil, false))
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || strings.Count(line, "\n") != 1 || strings.ContainsAny(line, "\r\x1b\x7f") {
			t.Errorf("%s: %v in %q", row.name, err, line)
		}
		if fields["user_agent"] != row.json || fields["referer"] != row.json || fields["status"] != 200.0 || len(fields) != 12 {
			t.Errorf("%s: %v", row.name, fields)
		}
		want := `192.0.2.0/24 - - [02/Jan/2026:03:04:05 +0000] "GET / HTTP/1.1" 200 5 "` + row.combined + `" "` + row.combined + "\"\n"
		if got := string(e.appendCombined(nil, true)); got != want {
			t.Errorf("%s:\n%s, want\n%s", row.name, got, want)
		}
	}
	e := Entry{At: at, Status: 400, Bytes: 7}
	if got, want := string(e.appendCombined(nil, true)), `- - - [02/Jan/2026:03:04:05 +0000] "-" 400 7 "-" "-"`+"\n"; got != want {
		t.Errorf("a refused header:\n%s, want\n%s", got, want)
	}
}

// The share of logged requests does not depend on their status.
func TestLog_IsSampled(t *testing.T) {
	out := &bytes.Buffer{}
	var l Log
	for _, row := range []struct {
		share     float64
		low, high int
	}{{0, 0, 0}, {1, 4000, 4000}, {.25, 700, 1300}} {
		l.Set(Options{Output: out, Sample: row.share})
		before := strings.Count(out.String(), "\n")
		for i := range 4000 {
			l.Write(&Entry{Status: 200 + 300*(i%2)})
		}
		l.flush()
		if n := strings.Count(out.String(), "\n") - before; n < row.low || n > row.high {
			t.Errorf("a share of %v is %d lines of 4000", row.share, n)
		}
	}
}

func TestAppendRedacted_HidesSecrets(t *testing.T) {
	jwt := "eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.c2lnbmF0dXJl"
	for in, want := range map[string]string{
		"/a":                          "/a",
		"/a?b=c&d":                    "/a?b=c&d",
		"/a?Access_Token=x&b=1":       "/a?Access_Token=***&b=1",
		"/a?b=" + jwt:                 "/a?b=***",
		"/verify/" + jwt + "/now":     "/verify/***/now",
		"https://h/p?password=1&ok=2": "https://h/p?password=***&ok=2",
		"/a?":                         "/a?",
		"/a?&&b":                      "/a?&&b",
		"/a?toke=1&CREDIT=2":          "/a?toke=1&CREDIT=***",
	} {
		if got := string(appendRedacted(nil, []byte(in))); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}
