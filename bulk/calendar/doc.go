// Package calendar evaluates cron expressions and quiet hours, both of which depend on the clocks of time zones.
package calendar
