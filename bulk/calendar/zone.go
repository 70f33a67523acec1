package calendar

import (
	"fmt"
	"time"
	_ "time/tzdata" // for systems without a database of time zones
)

// Zone returns a time zone by its IANA name; "" is UTC.
func Zone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, fmt.Errorf("time_zone %q: it may differ between processes; use a name such as Europe/Berlin", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time_zone %q: use an IANA name such as Europe/Berlin or UTC", name)
	}
	return zone, nil
}

// instant returns the first instant at which the clocks of the zone show a local time. wall has that local time as its UTC
// fields. For a local time that the clocks skip, it returns the instant of the change.
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
	if !start.IsZero() { // the clocks may also have shown it before the last change
		_, before := start.Add(-time.Second).Zone()
		if earlier := wall.Add(-time.Duration(before) * time.Second).In(zone); earlier.Before(t) && local(earlier).Equal(wall) {
			return earlier
		}
	}
	return t
}

// local returns the local time at t in t's zone, as the fields of a time in UTC.
func local(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}
