package calendar

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// In Berlin clocks go from 02:00 to 03:00 on 2026-03-29 and from 03:00 back to 02:00 on 2026-10-25.
func TestCron_RunsAcrossChangesOfClocks(t *testing.T) {
	for _, row := range []struct{ cron, zone, after, want string }{
		{"30 9 * * *", "Europe/Berlin", "2026-03-28T00:00:00+01:00", "2026-03-28T09:30:00+01:00 2026-03-29T09:30:00+02:00"},
		// A time that is skipped runs at the change, and with another one of that moment once.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"},
		{"0,30 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00 2026-03-30T02:00:00+02:00"},
		// One that occurs twice runs the first time.
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T02:10:00+01:00", "2026-10-26T02:30:00+01:00"},
		// Every hour is every hour.
		{"0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00+01:00", "2026-03-29T01:00:00+01:00 2026-03-29T03:00:00+02:00 2026-03-29T04:00:00+02:00"},
		{"@hourly", "Europe/Berlin", "2026-10-25T01:30:00+02:00", "2026-10-25T02:00:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T03:00:00+01:00"},
		{"*/30 * * * *", "Europe/Berlin", "2026-10-25T02:10:00+02:00", "2026-10-25T02:30:00+02:00 2026-10-25T02:00:00+01:00 2026-10-25T02:30:00+01:00"},
		// Half an hour, and a day that does not exist.
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00+10:30", "2026-10-04T02:30:00+11:00 2026-10-05T02:15:00+11:00"},
		{"0 12 30 12 *", "Pacific/Apia", "2011-12-28T12:00:00-10:00", "2011-12-31T00:00:00+14:00 2012-12-30T12:00:00+14:00"},
		{"0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 9 * * mon-fri", "America/New_York", "2026-11-27T10:00:00-05:00", "2026-11-30T09:00:00-05:00"},
		{"@daily", "UTC", "2026-11-27T10:00:00Z", "2026-11-28T00:00:00Z"},
	} {
		c, err := ParseCron(row.cron, row.zone)
		if err != nil {
			t.Errorf("%s: %v", row.cron, err)
			continue
		}
		at := moment(t, row.after)
		for _, want := range strings.Fields(row.want) {
			if at = c.Next(at); !at.Equal(moment(t, want)) {
				t.Errorf("%s in %s after %s: %s, want %s", row.cron, row.zone, row.after, at.In(c.zone), want)
				break
			}
		}
	}
}

func TestParseCron_RefusesWhatItCannotRun(t *testing.T) {
	for _, row := range [][3]string{
		{"", "", "cron"}, {"* * * *", "", "cron"}, {"* * * * * *", "", "cron"}, {"60 * * * *", "", "cron"}, {"* * * * 7", "", "cron"}, {"0 0 30 2 *", "", "no such day"},
		{"@every 1h", "", "@every"}, {"TZ=UTC 0 0 * * *", "", "time_zone"}, {"@reboot", "", "cron"}, {"0 0 L * *", "", "cron"},
		{"@daily", "Local", "Local"}, {"@daily", "Mars/Olympus", "IANA"},
	} {
		if _, err := ParseCron(row[0], row[1]); err == nil || !strings.Contains(err.Error(), row[2]) {
			t.Errorf("%q in %q: %v", row[0], row[1], err)
		}
	}
}

// TestCron_NextIsLaterAndStable: the next time is later, and no time between is one.
func TestCron_NextIsLaterAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := func(name string, most int) string {
			return rapid.SampledFrom([]string{"*", "*/7", "0", "30", "1-3", "2"}).Filter(func(s string) bool { return s != "30" || most > 30 }).Draw(t, name)
		}
		c, err := ParseCron(field("minute", 59)+" "+field("hour", 23)+" * * *", rapid.SampledFrom([]string{"Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "UTC", "Africa/Casablanca"}).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		at := time.Unix(rapid.Int64Range(1_700_000_000, 1_900_000_000).Draw(t, "at"), 0)
		next := c.Next(at)
		if !next.After(at) {
			t.Fatalf("%s after %s", next, at)
		}
		between := at.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(at))-1).Draw(t, "between")))
		if again := c.Next(between); !again.Equal(next) {
			t.Fatalf("after %s: %s, after %s: %s", at, next, between, again)
		}
	})
}

func TestQuiet_IsChecked(t *testing.T) {
	for _, q := range []Quiet{{"22:00", "22:00", ""}, {"22", "08:00", ""}, {"24:00", "08:00", ""}, {"8:00", "09:00", ""}, {"22:00", "", ""}, {"22:00", "08:00", "Mars"}, {"22:00", "08:00", "Local"}} {
		if q.Check() == nil {
			t.Errorf("%+v was accepted", q)
		}
	}
	q := Quiet{"22:00", "08:00", "Europe/Berlin"}
	if err := q.Check(); err != nil {
		t.Error(err)
	}
	words := q.Words(moment(t, "2026-01-01T00:00:00Z"))
	if !strings.HasPrefix(words, "22:00 08:00 Europe/Berlin 3600 1774746000 7200 1792890000 3600 ") || QuietFrom(words) != q {
		t.Error(words)
	}
	for at, want := range map[string]bool{"2026-01-01T22:00:00+01:00": true, "2026-01-01T21:59:59+01:00": false, "2026-07-01T07:59:59+02:00": true, "2026-07-01T08:00:00+02:00": false} {
		if q.At(moment(t, at)) != want {
			t.Error(at)
		}
	}
	day := Quiet{"12:00", "13:00", ""}
	if !day.At(moment(t, "2026-01-01T12:30:00Z")) || day.At(moment(t, "2026-01-01T13:00:00Z")) {
		t.Error(day)
	}
}
