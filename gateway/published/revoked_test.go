package published

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
)

// sessions is a source with a clock that begins at start.
type sessions struct {
	mu      sync.Mutex
	changes uint64
	until   map[admission.ID]int64
	passed  time.Duration
	walks   int
	out     admission.Evacuation
}

func (s *sessions) Evacuation() admission.Evacuation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out
}

const start = int64(1_767_323_045) // 2026-01-02T03:04:05Z

func (s *sessions) Revocations() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

func (s *sessions) RedisNow() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return start*1e6 + s.passed.Microseconds()
}

func (s *sessions) EachRevoked(f func(admission.ID, int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.walks++
	for id, until := range s.until {
		if until > start+int64(s.passed/time.Second) {
			f(id, until)
		}
	}
}

func (s *sessions) revoke(n byte, seconds int64) {
	s.until[admission.ID{n}] = start + int64(s.passed/time.Second) + seconds
	s.changes++
}

func TestRevoked_IsMadeOncePerChange(t *testing.T) {
	s := &sessions{until: map[admission.ID]int64{}}
	var r Revoked
	get := func() *Document { return r.Document("sale", s, time.Unix(start, 0).Add(s.passed)) }
	want := func(what, body string, walks int) *Document {
		t.Helper()
		d := get()
		if string(d.Body) != body || s.walks != walks {
			t.Errorf("%s: after %d walks %s, want after %d %s", what, s.walks, d.Body, walks, body)
		}
		return d
	}
	const (
		empty = `{"room":"sale","generated_at":"2026-01-02T03:04:05.000000Z","complete":true,"revoked":[]}`
		one   = `{"room":"sale","generated_at":"2026-01-02T03:04:05.300000Z","complete":true,"revoked":[{"sid":"AQAAAAAAAAAAAAAAAAAAAA","until":1767323345}]}`
		two   = `{"room":"sale","generated_at":"2026-01-02T03:04:05.550000Z","complete":true,"revoked":[{"sid":"AgAAAAAAAAAAAAAAAAAAAA","until":1767323355},{"sid":"AQAAAAAAAAAAAAAAAAAAAA","until":1767323345}]}`
		later = `{"room":"sale","generated_at":"2026-01-02T03:09:11.000000Z","complete":true,"revoked":[{"sid":"AgAAAAAAAAAAAAAAAAAAAA","until":1767323355}]}`
	)
	first := want("at first", empty, 1)
	want("again", empty, 1)
	s.passed = 200 * time.Millisecond
	s.revoke(1, 300)
	want("a change 200 ms after the last version", empty, 1)
	s.passed = 300 * time.Millisecond
	second := want("the same change after a quarter of a second", one, 2)
	want("again", one, 2)
	if first.ETag == second.ETag {
		t.Errorf("both versions have the ETag %s", first.ETag)
	}
	s.revoke(2, 310)
	s.passed = 550 * time.Millisecond
	want("a second session", two, 3)
	s.passed = time.Second
	s.changes++
	if d := want("a change that leaves the list as it is", two, 4); d.ETag != get().ETag {
		t.Error("its ETag differs")
	}
	s.passed = 306 * time.Second
	want("after the first has ended", later, 5)
	want("again", later, 5)
	s.passed = 1000 * time.Second
	if d := get(); !strings.Contains(string(d.Body), `"revoked":[]`) {
		t.Errorf("after all have ended: %s", d.Body)
	}
}

func TestRevoked_HasTheLastEvacuation(t *testing.T) {
	s := &sessions{until: map[admission.ID]int64{}}
	s.revoke(1, 300)
	var r Revoked
	first := r.Document("sale", s, time.Unix(start, 0))
	s.out, s.passed = admission.Evacuation{Fence: start*1e6 + 7, At: start*1e6 + 999_999}, time.Second
	d := r.Document("sale", s, time.Unix(start, 0).Add(s.passed))
	const want = `{"room":"sale","generated_at":"2026-01-02T03:04:06.000000Z","complete":true,"evacuated":{"ct":1767323045000007,"iat":1767323045},"revoked":[{"sid":"AQAAAAAAAAAAAAAAAAAAAA","until":1767323345}]}`
	if string(d.Body) != want || d.ETag == first.ETag {
		t.Errorf("%s, ETag %s, want %s and another ETag", d.Body, d.ETag, want)
	}
}

func TestRevoked_IsBounded(t *testing.T) {
	s := &sessions{until: map[admission.ID]int64{}, changes: 1}
	for i := range Max + 10 {
		s.until[admission.ID{byte(i), byte(i >> 8), byte(i >> 16), 1}] = start + 1 + int64(i)
	}
	var r Revoked
	d := r.Document("sale", s, time.Unix(start, 0))
	var list struct {
		Complete bool
		Revoked  []struct{ Until int64 }
	}
	if err := json.Unmarshal(d.Body, &list); err != nil {
		t.Fatal(err)
	}
	if list.Complete || len(list.Revoked) != Max || list.Revoked[0].Until != start+Max+10 || list.Revoked[Max-1].Until != start+11 {
		t.Errorf("%d sessions, complete %v: want the %d that end last", len(list.Revoked), list.Complete, Max)
	}
	if each := len(d.Body) / Max; each > 56 {
		t.Errorf("%d bytes a session", each)
	}
}

func TestRevoked_IsSafeForConcurrentUse(t *testing.T) {
	s := &sessions{until: map[admission.ID]int64{}}
	var r Revoked
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 500 {
				s.mu.Lock()
				s.revoke(byte(g), 300)
				s.passed += time.Millisecond
				now := time.Unix(start, 0).Add(s.passed)
				s.mu.Unlock()
				if d := r.Document("sale", s, now); !json.Valid(d.Body) {
					t.Errorf("request %d: %s", i, d.Body)
				}
			}
		})
	}
	all.Wait()
	if s.walks > 20 {
		t.Errorf("%d versions in 4 s", s.walks)
	}
}

func TestDocument_Matches(t *testing.T) {
	d := New([]byte("text"))
	if New([]byte("text")).ETag != d.ETag || New([]byte("test")).ETag == d.ETag {
		t.Error("the ETag is not that of the body")
	}
	for value, want := range map[string]bool{
		"": false, "*": true, d.ETag: true, "W/" + d.ETag: true, ` "a" , ` + d.ETag + ` `: true, `"a", W/` + d.ETag: true, `"a"`: false,
		strings.Trim(d.ETag, `"`): false, d.ETag + "x": false, ",,": false, `"a",`: false, "w/" + d.ETag: false,
	} {
		if got := d.Matches([]byte(value)); got != want {
			t.Errorf("%s: %v, want %v", value, got, want)
		}
	}
}

func BenchmarkRevoked(b *testing.B) {
	for _, n := range []int{100, 10_000, Max} {
		s := &sessions{until: map[admission.ID]int64{}}
		for i := range n {
			s.until[admission.ID{byte(i), byte(i >> 8), byte(i >> 16), 1}] = start + 300
		}
		b.Run(fmt.Sprintf("made with %d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var r Revoked
				r.Document("sale", s, time.Unix(start, 0))
			}
		})
		b.Run(fmt.Sprintf("cached with %d", n), func(b *testing.B) {
			var r Revoked
			b.ReportAllocs()
			for b.Loop() {
				r.Document("sale", s, time.Unix(start, 0))
			}
		})
	}
}
