package admission

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

func snapshotText(t *testing.T, client redis.UniversalClient, r *Room) string {
	t.Helper()
	text, err := client.Get(ctx5(t), r.keys[14]).Result()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A snapshot in the store that cannot be parsed is replaced by the next tick, which admits as many visitors as any other tick.
func TestSnapshot_UnreadableIsRebuilt(t *testing.T) {
	for name, spoil := range map[string]func(string) string{
		"packed":  func(text string) string { return text[:len(text)-30] + strings.Repeat("\xc1", 30) },
		"chunks":  func(text string) string { return strings.ReplaceAll(text, "\xcf", "\xc0") },
		"header":  func(text string) string { return strings.Replace(text, " ", "  ", 1) },
		"nothing": func(string) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			clock, client := newTestClock(), redistest.Client(t)
			p := basePolicy
			p.Rate, p.Burst = 1000, 1000
			r := testRoom(t, client, redistest.Prefix(t), clock, p)
			for n := range 3 {
				qs := make([]enterQ, 500)
				for i := range qs {
					qs[i] = enrolling(r, testID(), clock.us-int64(1500-500*n-i))
				}
				if _, err := r.calls.sendEnter(ctx5(t), qs); err != nil {
					t.Fatal(err)
				}
			}
			clock.pass(time.Second)
			if err := r.Tick(ctx5(t)); err != nil {
				t.Fatal(err)
			}
			for range 16 {
				if err := client.Set(ctx5(t), r.keys[14], spoil(snapshotText(t, client, r)), 0).Err(); err != nil {
					t.Fatal(err)
				}
				clock.pass(250 * time.Millisecond)
				if err := r.Tick(ctx5(t)); err != nil {
					t.Errorf("the next tick: %v", err)
				}
			}
			if n, err := client.ZCard(ctx5(t), r.keys[5]).Result(); err != nil || n > 6 {
				t.Errorf("%d are admitted in 5 s at 1/s: %v", n, err)
			}
			if s := r.Snapshot(); s.RoomTime != clock.us || len(s.Front) != 1000 || len(s.Sketch) < 50 {
				t.Errorf("snapshot %d µs old, front %d, sketch %d", clock.us-s.RoomTime, len(s.Front), len(s.Sketch))
			}
		})
	}
}
