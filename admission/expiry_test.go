package admission

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Every key of a room expires after the room is removed from every configuration.
func TestKeys_ExpireWhenRoomIsGone(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	c := newTestClock()
	r := testRoom(t, client, prefix, c, basePolicy)
	for range 10 {
		mustJoin(t, r, testID(), testClient(1))
	}
	if err := r.Pause(ctx5(t), "ann"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.pass(30 * time.Second)
		mustTick(t, r)
		c.pass(30 * time.Second)
		mustTick(t, r)
	}
	found := 0
	for _, key := range r.keys {
		left, err := client.TTL(ctx5(t), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if left == -2 {
			continue // there is no such key
		}
		found++
		if left <= 0 || left > 30*24*time.Hour {
			t.Errorf("%s expires in %v", key, left)
		}
	}
	if found < 8 {
		t.Fatalf("only %d keys", found)
	}
}

// History older than a day is removed, also when no gateway ticked the room for hours.
func TestHistory_TrimmedAfterLongSilence(t *testing.T) {
	client, prefix := redistest.Client(t), redistest.Prefix(t)
	c := newTestClock()
	r := testRoom(t, client, prefix, c, basePolicy)
	for range 300 {
		c.pass(time.Minute)
		mustTick(t, r)
	}
	c.pass(30 * time.Hour)
	for range 60 {
		c.pass(time.Second)
		mustTick(t, r)
	}
	fields, err := client.HKeys(ctx5(t), r.keys[keyMinutes]).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		minute, err := strconv.ParseInt(strings.TrimRight(f, "jaxqrw"), 10, 64)
		if err == nil && minute < c.us/60e6-1441 {
			t.Fatalf("%d fields, and %s among them", len(fields), f)
		}
	}
}
