package bulk

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/anteroom/anteroom/bulk/store"
)

// sizes records how much each call of Ack carries.
type sizes struct {
	mu    sync.Mutex
	count []int
	bytes []int
}

func (s *sizes) Ack(_ context.Context, acks []store.Ack) ([]store.AckState, error) {
	n := 0
	for _, a := range acks {
		n += len(a.Result)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count, s.bytes = append(s.count, len(acks)), append(s.bytes, n)
	return make([]store.AckState, len(acks)), nil
}

func TestAcker_BoundsBytesOfCall(t *testing.T) {
	s, p := &sizes{}, newPool(100, 100)
	a := newAcker(s, p, newRegistry(), NewMetrics(nil, ""), discard(), newHealth(discard(), func(bool) {}).role("acker"), 20)
	for i := range 100 {
		result := make([]byte, 10)
		if i >= 60 {
			result = make([]byte, 300<<10)
		}
		if i == 99 {
			result = make([]byte, 2*maxAckBytes) // alone
		}
		p.start()
		p.finish()
		a.add(&run{}, store.Ack{Verdict: store.Done, Result: result})
	}
	l := begin(t.Context(), a.run)
	defer l.stop()
	if left := a.flush(t.Context()); left != 0 {
		t.Fatalf("%d are left", left)
	}
	total := 0
	for i, n := range s.count {
		total += n
		if n > 20 || (s.bytes[i] > maxAckBytes && n > 1) {
			t.Errorf("call %d carries %d acks of %d bytes", i, n, s.bytes[i])
		}
	}
	if total != 100 || len(s.count) != 3+13+1 {
		t.Errorf("%d acks in %d calls, want 100 in 17", total, len(s.count))
	}
	if u := p.snapshot(false).unacked; u != 0 {
		t.Errorf("%d count as unacknowledged", u)
	}
}

func TestAck_NormalizesCodeAndText(t *testing.T) {
	for in, want := range map[string]string{"": "error", "http_500": "http_500", "HTTP 500": "http_500", "größe": "gr__e", strings.Repeat("a", 99): strings.Repeat("a", 64)} {
		if got := code(in); got != want {
			t.Errorf("code %q becomes %q, want %q", in, got, want)
		}
	}
	if brief(nil) != "" || brief(errors.New("a\xffb")) != "a\uFFFDb" {
		t.Errorf("%q, %q", brief(nil), brief(errors.New("a\xffb")))
	}
	for cut := range 4 {
		got := brief(errors.New(strings.Repeat("x", cut) + strings.Repeat("€", 1000)))
		if len(got) > maxErrorText || len(got) < maxErrorText-3 || !utf8.ValidString(got) {
			t.Errorf("%d bytes, valid %t", len(got), utf8.ValidString(got))
		}
	}
}
