package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValidate_ChecksPlans(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"draw": strings.Repeat("s3cret-", 6) + "\n", "short": "too-short\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const (
		secret = "draw_secret_file: DIR/draw"
		lot    = "queue: {method: lottery, opens_at: 2099-01-31T10:00:00+09:00, " + secret
	)
	event := func(fields string) string { return "{name: x, " + fields + "}" }
	at := func(starts, ends, more string) string {
		return event("starts_at: 2099-03-01T" + starts + ":00+01:00, ends_at: 2099-03-01T" + ends + ":00+01:00, " + more)
	}
	events := func(list ...string) string {
		return "queue: {" + secret + "}, events: [" + strings.Join(list, ", ") + "]"
	}
	for _, row := range []struct {
		name, room string
		want       []string
	}{
		{"a lottery", lot + "}", nil},
		{"with a prequeue", lot + ", prequeue_at: 2099-01-31T00:30:00Z}", nil},
		{"no opening", "queue: {method: lottery, " + secret + "}", []string{"rooms[0].queue.opens_at: is missing: a lottery needs the time at which it opens"}},
		{"no secret", "queue: {method: lottery, opens_at: 2099-01-31T10:00:00Z}", []string{"rooms[0].queue.draw_secret_file: is missing: a lottery is drawn with a secret; make one with: "}},
		{"an opening of no lottery", "queue: {opens_at: 2099-01-31T10:00:00Z}", []string{"rooms[0].queue.draw_secret_file: is missing: opens_at is for method: lottery, which is drawn with a secret; leave opens_at out, or make one"}},
		{"a secret that is not there", "queue: {draw_secret_file: DIR/none}", []string{`rooms[0].queue.draw_secret_file: "DIR/none" cannot be read`}},
		{"a secret to be guessed", "queue: {draw_secret_file: DIR/short}", []string{`rooms[0].queue.draw_secret_file: "DIR/short" has 9 bytes; a secret that nobody can guess has at least 32`}},
		{"no zone", "queue: {opens_at: 2099-01-31T10:00:00, " + secret + "}", []string{`rooms[0].queue.opens_at: "2099-01-31T10:00:00" is not a time; use RFC 3339 with a zone`}},
		{"the wrong way round", lot + ", prequeue_at: 2099-01-31T02:00:00Z}", []string{"rooms[0].queue.prequeue_at: 2099-01-31T02:00:00Z is not before opens_at (2099-01-31T10:00:00+09:00)"}},
		{"a prequeue for nothing", "queue: {prequeue_at: 2099-01-31T02:00:00Z}", []string{"rooms[0].queue.prequeue_at: is set without opens_at"}},

		{"events that touch", events(at("10:00", "11:00", "rate: 5"), at("11:00", "12:00", "method: reject")), nil},
		{"events that meet", events(at("11:00", "12:00", "method: reject"), at("10:00", "11:01", "rate: 5")), []string{
			"rooms[0].events[0]: begins (2099-03-01T11:00:00+01:00, prequeue included) before events[1] has ended (2099-03-01T11:01:00+01:00); events of a room may not overlap, as \"x\" and \"x\" do"}},
		{"events within another", events(at("10:00", "15:00", "rate: 5"), at("11:00", "12:00", "rate: 6"), at("13:00", "14:00", "rate: 7")), []string{
			"rooms[0].events[1]: begins (2099-03-01T11:00:00+01:00, prequeue included) before events[0] has ended", "rooms[0].events[2]: begins (2099-03-01T13:00:00+01:00, prequeue included) before events[0] has ended"}},
		{"an opening of no century", "queue: {opens_at: 9999-01-31T10:00:00Z, " + secret + "}", []string{"rooms[0].queue.opens_at: 9999-01-31T10:00:00Z: use a year from 2000 to 2200"}},
		{"a prequeue that meets", events(at("10:00", "11:00", "rate: 5"), at("12:00", "13:00", "method: lottery, prequeue_at: 2099-03-01T09:30:00Z")), []string{
			"rooms[0].events[1]: begins (2099-03-01T09:30:00Z, prequeue included) before events[0] has ended"}},
		{"an event without times", events(event("rate: 5")), []string{"rooms[0].events[0].starts_at: is missing", "rooms[0].events[0].ends_at: is missing"}},
		{"an event of no zone", events(event("starts_at: '2099-03-01 10:00', ends_at: 2099-03-01T11:00:00Z, rate: 5")), []string{`rooms[0].events[0].starts_at: "2099-03-01 10:00" is not a time`}},
		{"an event that ends first", events(at("11:00", "10:00", "rate: 5")), []string{"rooms[0].events[0].ends_at: "}},
		{"an event of nothing", events(at("10:00", "11:00", "rate: 0")), []string{"rooms[0].events[0]: changes nothing; give it a rate or a method"}},
		{"a prequeue of no lottery", events(at("10:00", "11:00", "rate: 5, prequeue_at: 2099-03-01T08:00:00Z")), []string{"rooms[0].events[0].prequeue_at: is for method: lottery"}},
		{"a lottery of no prequeue", events(at("10:00", "11:00", "method: lottery")), []string{"rooms[0].events[0].prequeue_at: is missing"}},
		{"a prequeue after its opening", events(at("10:00", "11:00", "method: lottery, prequeue_at: 2099-03-01T10:30:00Z")), []string{"rooms[0].events[0].prequeue_at: "}},
		{"a method of no version", events(at("10:00", "11:00", "method: lifo")), []string{`rooms[0].events[0].method: "lifo" is not known`}},
		{"an event's lottery without a secret", "events: [" + at("10:00", "11:00", "method: lottery, prequeue_at: 2099-03-01T08:30:00Z") + "]", []string{"rooms[0].queue.draw_secret_file: is missing"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, problems := loadText(t, strings.ReplaceAll(shop+"rooms: [{id: sale, "+row.room+"}]", "DIR", dir)+"\n")
			for i := range row.want {
				row.want[i] = strings.ReplaceAll(row.want[i], "DIR", dir)
			}
			wantProblems(t, problems, row.want...)
		})
	}
}
