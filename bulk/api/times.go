package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/calendar"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

const ruleQuiet = `{"from": "22:00", "to": "08:00", "time_zone": "Europe/Berlin"}`

var quietFields = []field[calendar.Quiet]{
	{"from", "", func(q *calendar.Quiet, raw []byte) string { return setText(&q.From, raw) }, true},
	{"to", "", func(q *calendar.Quiet, raw []byte) string { return setText(&q.To, raw) }, true},
	{"time_zone", "", func(q *calendar.Quiet, raw []byte) string { return setText(&q.Zone, raw) }, true},
}

func setText(to *string, raw []byte) string {
	if !ophttp.IsText(raw) {
		return "is not text"
	}
	*to = ophttp.Text(raw)
	return ""
}

// setQuiet reads hours in which no job starts.
func setQuiet(to *calendar.Quiet, raw []byte) string {
	o, err := ophttp.Object(raw)
	if err != nil {
		return "is not an object with from, to and time_zone"
	}
	if faults := decode(quietFields, o, to); len(faults) > 0 {
		return fmt.Sprintf("has a wrong field: %s %s", faults[0].Path, faults[0].Problem)
	}
	if err := to.Check(); err != nil {
		return "is not valid: " + strings.TrimPrefix(err.Error(), "quiet_hours: ")
	}
	return ""
}

func setMoment(to **time.Time, raw []byte) string {
	return setOr(to, raw, time.Time{}, func(to *time.Time) (wrong string) {
		*to, wrong = moment(raw)
		return wrong
	})
}

const ruleUnique = `{"key": 1 to 200 bytes of printable characters, "for": 1s to 720h, as "10m"}`

// setUnique reads a name that may be used once within a time.
func setUnique(to *store.Unique, raw []byte) string {
	o, err := ophttp.Object(raw)
	if err != nil {
		return "is not an object with key and for"
	}
	faults := decode(uniqueFields, o, to)
	switch {
	case len(faults) > 0:
		return fmt.Sprintf("has a wrong field: %s %s", faults[0].Path, faults[0].Problem)
	case to.Key == "" || to.Within == 0:
		return "lacks key or for"
	}
	return ""
}

var uniqueFields = []field[store.Unique]{
	{"key", "", func(u *store.Unique, raw []byte) string {
		if !ophttp.IsText(raw) {
			return "is not text"
		}
		if u.Key = ophttp.Text(raw); u.Key == "" || len(u.Key) > 200 {
			return "has a wrong length"
		}
		return ""
	}, true},
	{"for", "", func(u *store.Unique, raw []byte) string {
		return setSpan(&u.Within, raw, store.MinUnique, store.MaxUnique)
	}, true},
}

// setSpan reads a duration such as "90s" or "1h30m".
func setSpan(to *time.Duration, raw []byte, least, most time.Duration) (wrong string) {
	if !ophttp.IsText(raw) {
		return `is not a duration such as "90s" or "1h30m"`
	}
	d, err := time.ParseDuration(ophttp.Text(raw))
	switch {
	case err != nil:
		return `is not a duration such as "90s" or "1h30m"`
	case d < least || d > most:
		return fmt.Sprintf("is not from %s to %s", least, most)
	}
	*to = d
	return ""
}
