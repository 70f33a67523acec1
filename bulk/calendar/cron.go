package calendar

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Cron is a cron expression in a time zone. Where clocks change, an expression with fixed hours has one time for each local
// time: for a local time that is skipped, the change itself; for one that occurs twice, the first. An expression whose hour
// field begins with * runs by elapsed time.
type Cron struct {
	spec  cron.SpecSchedule
	zone  *time.Location
	every bool // the hour field begins with *
}

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// someDay is a day from which every expression that can run does so within five years.
var someDay = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// ParseCron parses the five fields minute, hour, day of month, month and day of week (0 to 6, or names), or one of @hourly,
// @daily, @weekly, @monthly, @yearly. zone is an IANA name.
func ParseCron(expression, zone string) (*Cron, error) {
	location, err := Zone(zone)
	if err != nil {
		return nil, err
	}
	expression = strings.TrimSpace(expression)
	switch {
	case strings.HasPrefix(expression, "@every"):
		return nil, errors.New("cron: @every has no fixed times; use fields such as */15 * * * *")
	case strings.Contains(expression, "TZ="):
		return nil, errors.New("cron: name the time zone in time_zone")
	}
	parsed, err := parser.Parse(expression)
	if err != nil {
		return nil, fmt.Errorf("cron %q: %w", expression, err)
	}
	spec, is := parsed.(*cron.SpecSchedule)
	if !is {
		return nil, fmt.Errorf("cron %q: use minute, hour, day of month, month and day of week", expression)
	}
	c := &Cron{spec: *spec, zone: location, every: expression == "@hourly"}
	if fields := strings.Fields(expression); len(fields) == 5 {
		c.every = strings.HasPrefix(fields[1], "*")
	}
	if c.spec.Location = time.UTC; c.every {
		c.spec.Location = location
	}
	if c.Next(someDay).IsZero() {
		return nil, fmt.Errorf("cron %q: no such day exists", expression)
	}
	return c, nil
}

// Next returns the first time of c after t, in UTC; the zero time if there is none within five years.
func (c *Cron) Next(t time.Time) time.Time {
	if c.every {
		return c.spec.Next(t.In(c.zone)).UTC()
	}
	for wall := local(t.In(c.zone)); ; {
		if wall = c.spec.Next(wall); wall.IsZero() {
			return wall
		}
		if at := instant(wall, c.zone); at.After(t) {
			return at.UTC()
		}
	}
}
