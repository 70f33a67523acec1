package calendar

import (
	"fmt"
	"time"
	_ "time/tzdata" // also where the system has no time zones
)

// Zone returns a time zone by its IANA name; "" is UTC.
func Zone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, fmt.Errorf("time_zone %q: processes may have different ones; use a name such as Europe/Berlin", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time_zone %q: use an IANA name such as Europe/Berlin or UTC", name)
	}
	return zone, nil
}

// instant returns the first instant at which clocks of the zone show a local time, which wall has as its UTC fields; for one
// that the clocks skip, the instant at which they do.
func instant(wall time.Time, zone *time.Location) time.Time {
	y, mo, d := wall.Date()
	h, mi, s := wall.Clock()
	t := time.Date(y, mo, d, h, mi, s, 0, zone)
	start, end := t.ZoneBounds()
	if !local(t).Equal(wall) { // skipped: t is on one side of the change
		if start.IsZero() || !end.IsZero() && end.Sub(t).Abs() < t.Sub(start).Abs() {
			return end
		}
		return start
	}
	if !start.IsZero() { // it may have been shown before the last change, too
		_, before := start.Add(-time.Second).Zone()
		if earlier := wall.Add(-time.Duration(before) * time.Second).In(zone); earlier.Before(t) && local(earlier).Equal(wall) {
			return earlier
		}
	}
	return t
}

// local returns what clocks of t's zone show at t, as the fields of a time in UTC.
func local(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}
