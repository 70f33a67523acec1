package outbound

import (
	"net/http"
	"testing"
	"time"
)

func TestParseRetryAfter_ReadsSecondsAndDates(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                                      0,
		"0":                                     0,
		"1":                                     time.Second,
		" 30 ":                                  30 * time.Second,
		"007":                                   7 * time.Second,
		"3600":                                  time.Hour,
		"3601":                                  time.Hour,
		"99999999999999999999999999":            time.Hour,
		"-1":                                    0,
		"+1":                                    0,
		"1.5":                                   0,
		"1s":                                    0,
		"soon":                                  0,
		"Fri, 02 Jan 2026 03:04:15 GMT":         10 * time.Second,
		"Friday, 02-Jan-26 03:04:15 GMT":        10 * time.Second, // the two obsolete forms that RFC 9110 has readers take
		"Fri Jan  2 03:04:15 2026":              10 * time.Second,
		"Fri, 02 Jan 2026 03:04:05 GMT":         0,
		"Thu, 01 Jan 2026 00:00:00 GMT":         0,
		"Fri, 02 Jan 2026 04:04:06 GMT":         time.Hour,
		"Fri, 31 Dec 9999 23:59:59 GMT":         time.Hour,
		"Fri, 02 Jan 2026 03:04:15 GMT, Friday": 0,
	} {
		if got := ParseRetryAfter(value, now); got != want {
			t.Errorf("ParseRetryAfter(%q) = %s, want %s", value, got, want)
		}
	}
}

// The wait is within bounds for every header value, and a date yields the time until that date.
func FuzzParseRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "120", "99999999999999999999", "Fri, 02 Jan 2026 03:04:15 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", "-5", "\x00"} {
		f.Add(seed, int64(1767323045))
	}
	f.Fuzz(func(t *testing.T, value string, unix int64) {
		now := time.Unix(unix%(1<<36), 0)
		got := ParseRetryAfter(value, now)
		if got < 0 || got > MaxRetryAfter {
			t.Fatalf("%q: %s", value, got)
		}
		if at, err := http.ParseTime(value); err == nil && now.Before(at) && at.Before(now.Add(MaxRetryAfter)) && got != at.Sub(now) {
			t.Fatalf("%q at %s: %s", value, now, got)
		}
	})
}
