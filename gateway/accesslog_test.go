package gateway

import (
	"bytes"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// linesOnly is a reader beside which others write.
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

// Lines are collected, and handed on whole: the log proper goes to the same place, and would come between two parts.
func TestAccessLogHandsOnWholeLines(t *testing.T) {
	for _, combined := range []bool{false, true} {
		w := &linesOnly{t: t}
		var l accessLog
		l.set(Access{Output: w, Combined: combined, Sample: 1})
		want := 0
		for i := range 3 * accessBuffer / 100 {
			l.write(&entry{at: time.Unix(int64(i), 0), method: []byte("GET"), target: []byte("/" + strings.Repeat("a", i%97)), status: 200})
			want++
		}
		l.write(&entry{method: []byte("GET"), target: []byte("/" + strings.Repeat("a", 2*accessBuffer)), status: 200})
		l.flush()
		if want++; w.n != want {
			t.Errorf("combined=%v: %d lines, want %d", combined, w.n, want)
		}
	}
}

// A line costs what its fields may have at most, not what the client has sent, and its secrets do not appear where a
// field is cut.
func TestAccessLog_CutsLongFields(t *testing.T) {
	long := "/" + strings.Repeat("?a=&token=secret", 1000)
	jwt := []byte("/p/eyJ" + strings.Repeat("a", 5000) + ".secret")
	for _, row := range []struct{ name, target, want string }{
		{"a query", long, "token=***"}, {"a token in the path", string(jwt), "/p/eyJaaa"},
	} {
		e := entry{method: []byte("GET"), host: []byte(strings.Repeat("h", 9000)), target: []byte(row.target), referer: []byte(row.target), agent: []byte(strings.Repeat("u", 9000))}
		for format, line := range map[string]string{"json": string(e.appendJSON(nil, false)), "combined": string(e.appendCombined(nil, false))} {
			if strings.Contains(line, "secret") || !strings.Contains(line, row.want) || strings.Count(line, cutMark) < 3 {
				t.Errorf("%s, %s: %.300s", row.name, format, line)
			}
			if most := 4*(maxLogged+len(cutMark)) + 1000; len(line) > most {
				t.Errorf("%s, %s: a line of %d bytes, want at most %d", row.name, format, len(line), most)
			}
		}
	}
}

// A line is composed while others hold the lock, and without an allocation.
func TestAccessLog_ComposesOutsideTheLock(t *testing.T) {
	var l accessLog
	l.set(Access{Output: io.Discard, Sample: 1})
	e := entry{addr: netip.MustParseAddr("192.0.2.7"), method: []byte("GET"), host: []byte("shop.test"), outcome: "proxied",
		target: []byte("/a?" + strings.Repeat("tok=eyJ&", 1000)), referer: []byte("/a?" + strings.Repeat("a=&", 3000))}
	for _, combined := range []bool{false, true} {
		l.set(Access{Output: io.Discard, Sample: 1, Combined: combined})
		if n := testing.AllocsPerRun(100, func() { l.write(&e) }); n > 0 && !raceEnabled {
			t.Errorf("combined=%v: %v allocations a line", combined, n)
		}
	}
	l.mu.Lock() // whoever needed it to compose a line would wait for ever
	if len(l.line(&e, &lineBuffer{})) == 0 {
		t.Error("no line is composed")
	}
	l.mu.Unlock()
	l.set(Access{})
	l.write(&e) // into nothing
}
