package gateway

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestRequestThatIsNotHTTPIsLoggedAsItIs(t *testing.T) {
	log := &syncBuffer{}
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Access: Access{Output: log, Sample: 1},
	})
	b.call("GET /", "Bad Name: x").code(t, 400)
	b.stop()
	line := regexp.MustCompile(`"(time|seconds)":("[^"]*"|[^,]*),`).ReplaceAllString(log.String(), "")
	if want := `{"msg":"access","ip":"127.0.0.1","method":"","host":"","target":"","status":400,"bytes":156,"outcome":"refused","user_agent":""}` + "\n"; line != want {
		t.Errorf("%swant\n%s", line, want)
	}
}

func TestFaultOfAnOriginIsOneLine(t *testing.T) {
	s := newSite(t, "shop", nil)
	s.Close()
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{Origins: []proxy.Config{originAt("shop", s.URL)}})
	b.call("GET /", asJSON).code(t, 502)
	if log := b.logs.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, `"kind":"connect"`) {
		t.Errorf("%s", log)
	}
}

// Whatever a visitor sends, a request is one line, and its fields are where they are looked for.
func TestHostileBytesInTheAccessLog(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for _, row := range []struct{ name, said, json, combined string }{
		{"plain", "curl/8", "curl/8", "curl/8"},
		{"another line", "a\r\n1.2.3.4 - - [x] \"GET / HTTP/1.1\" 200", "a\r\n1.2.3.4 - - [x] \"GET / HTTP/1.1\" 200", `a\x0d\x0a1.2.3.4 - - [x] \x22GET / HTTP/1.1\x22 200`},
		{"the end of the field", `","status":500,"x":"\`, `","status":500,"x":"\`, `\x22,\x22status\x22:500,\x22x\x22:\x22\x5c`},
		{"a terminal's colours", "\x1b[31mred\x7f", "\x1b[31mred\x7f", `\x1b[31mred\x7f`},
		{"no UTF-8", "\xff\xc3", "\ufffd\ufffd", `\xff\xc3`},
		{"letters from elsewhere", "é", "é", `\xc3\xa9`},
	} {
		e := entry{at: at, took: time.Second, addr: netip.MustParseAddr("192.0.2.77"), method: []byte("GET"), host: []byte("shop.test"),
			target: []byte("/"), proto: "HTTP/1.1", agent: []byte(row.said), referer: []byte(row.said), outcome: "proxied", status: 200, bytes: 5}
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
	e := entry{at: at, status: 400, bytes: 7}
	if got, want := string(e.appendCombined(nil, true)), `- - - [02/Jan/2026:03:04:05 +0000] "-" 400 7 "-" "-"`+"\n"; got != want {
		t.Errorf("a header that was not let in:\n%s, want\n%s", got, want)
	}
}

// A sample is of all requests alike, whatever became of them.
func TestAccessLogIsSampled(t *testing.T) {
	out := &syncBuffer{}
	var l accessLog
	for _, row := range []struct {
		share     float64
		low, high int
	}{{0, 0, 0}, {1, 4000, 4000}, {.25, 700, 1300}} {
		l.set(Access{Output: out, Sample: row.share})
		before := strings.Count(out.String(), "\n")
		for i := range 4000 {
			l.write(&entry{status: 200 + 300*(i%2)})
		}
		l.flush()
		if n := strings.Count(out.String(), "\n") - before; n < row.low || n > row.high {
			t.Errorf("a share of %v is %d lines of 4000", row.share, n)
		}
	}
}
