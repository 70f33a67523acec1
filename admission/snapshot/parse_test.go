package snapshot

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/anteroom/anteroom/admission/policy"
)

// packText returns a snapshot as lua/room_advance.lua writes it. The caller packs its queue.
func packText(packed string) string {
	head := []string{"4", "7", "1.a", "1", "1780000000000000", "1780000000000000", "3000", "4", "5", "6", "1779999990000000", "0",
		"1779000000000000", "2", "9000", "800", "700", "60", "50", "1780000000000000", "1779999000000000:4000000", "0", "0", "50000",
		"0", "0", "0", "0", strconv.Itoa(len(packed))}
	return strings.Join(head, " ") + "\nrate=5000 method=fifo message=1\n1780000000:7,1779999999:3\n1779999999:5:1000000\nhold\non" + packed
}

func packLine(tb testing.TB, l ...any) string {
	tb.Helper()
	b, err := msgpack.Marshal(append(l, []int64{}, []int64{}, []int64{}, 3, 0)) // Heads, Sample, Holds, revocations, backlog
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// FuzzParseSnapshot: Parse refuses a text, or returns a snapshot whose orders and ranks ascend and whose methods do not panic.
func FuzzParseSnapshot(f *testing.F) {
	chunk := func(n ...int64) string {
		b, err := msgpack.Marshal(n)
		if err != nil {
			f.Fatal(err)
		}
		return string(b)
	}
	f.Add(packText(packLine(f, []int64{}, []string{}, []int64{}, 0, 0, 0, 0, 0)))
	f.Add(packText(packLine(f, []int64{100, 5, 0, 7}, []string{chunk(0, 1, 200, 4, 300, 9), chunk(2, 3, 500, 20)}, []int64{300, 500}, 9, 1, 2, 900, 0)))
	f.Add(packText(packLine(f, []int64{100, -5}, []string{}, []int64{}, 0, 0, 0, 0, 0)))
	f.Add(packText(packLine(f, []int64{1 << 62, 1 << 62}, []string{chunk(-1<<63, 1, 200, 1<<62)}, []int64{300}, -1, 0, 1<<62, 0, 3)))
	f.Add(packText(packLine(f, []int64{100}, []string{chunk(0)}, []int64{}, 0, 0, 0, 0, 0)))
	f.Add(packText("\xdd\xff\xff\xff\xff"))
	f.Add(packText("\x9d\xdd\xff\xff\xff\xff"))
	f.Add(strings.Replace(packText(""), " 0\n", " -1\n", 1))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text, steadily())
		if err != nil {
			return
		}
		if !slices.IsSorted(s.Front) {
			t.Errorf("front %v", s.Front)
		}
		last := Rank{}
		if n := len(s.Front); n > 0 {
			last.Order = s.Front[n-1]
		}
		for i, k := range s.Sketch {
			if k.Order <= last.Order || i > 0 && k.Rank < last.Rank {
				t.Errorf("sample %+v after %+v", k, last)
			}
			last = k
		}
		plausible := len(s.Front) > 0 && s.Waiting >= int64(len(s.Front)) && s.Waiting < 1<<50
		for _, k := range s.Sketch {
			if n := s.Ahead(k.Order); n != k.Rank && plausible {
				t.Errorf("%d ahead of sample %+v", n, k)
			}
			s.Ahead(k.Order - 1)
		}
		s.Unenrolled(s.Time+1, s.Time)
		s.Extrapolated(s.Time + 1)
		again, _ := Parse(text, steadily())
		again.CapRanks(s)
	})
}

// steadily returns the schedule of a policy without events.
func steadily() *policy.Schedule {
	return policy.NewSchedule(policy.Policy{
		Enabled: true, Method: policy.FIFO, Rate: 5000, Burst: 5000, Absence: 10 * time.Minute,
		ClaimWindow: 5 * time.Minute, SessionTTL: 5 * time.Minute, OnStoreError: policy.OnErrorWait,
	})
}
