package gateway

import (
	"bytes"
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
