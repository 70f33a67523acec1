package calendar

import (
	"fmt"
	"strings"
	"time"
)

// Quiet is a range of hours of each day, in a time zone, in which no job starts. It may include midnight.
type Quiet struct {
	From string // "22:00"
	To   string // "08:00", not included
	Zone string // IANA name; "" is UTC
}

// Check returns an error for hours that are not valid.
func (q Quiet) Check() error {
	for _, text := range []string{q.From, q.To} {
		if _, err := time.Parse("15:04", text); err != nil || len(text) != 5 {
			return fmt.Errorf("quiet_hours: %q is not a time of day such as 22:00", text)
		}
	}
	if q.From == q.To {
		return fmt.Errorf("quiet_hours: from and to are both %s; use different times, or pause the group", q.From)
	}
	if _, err := Zone(q.Zone); err != nil {
		return fmt.Errorf("quiet_hours: %w", err)
	}
	return nil
}

// wordsCover is how far ahead Words has the changes of the clocks.
const wordsCover = 3 * 366 * 24 * time.Hour

// Words returns valid hours as scripts read them: from, to, the zone, its offset from UTC now, and for each change of the
// clocks within three years its time and the offset from then on, in seconds.
func (q Quiet) Words(now time.Time) string {
	zone, err := Zone(q.Zone)
	if err != nil {
		return ""
	}
	t := now.In(zone)
	_, offset := t.Zone()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %d", q.From, q.To, zone, offset)
	for {
		_, end := t.ZoneBounds()
		if end.IsZero() || end.Sub(now) > wordsCover {
			return b.String()
		}
		t = end
		_, offset = t.Zone()
		fmt.Fprintf(&b, " %d %d", t.Unix(), offset)
	}
}

// QuietFrom parses the result of Words.
func QuietFrom(words string) Quiet {
	if w := strings.Fields(words); len(w) > 3 {
		return Quiet{From: w[0], To: w[1], Zone: w[2]}
	}
	return Quiet{}
}

// At reports whether t is within the hours. A local time that occurs twice is within them both times.
func (q Quiet) At(t time.Time) bool {
	zone, err := Zone(q.Zone)
	if err != nil {
		return false
	}
	now := t.In(zone).Format("15:04")
	if q.From < q.To {
		return q.From <= now && now < q.To
	}
	return q.From <= now || now < q.To
}
