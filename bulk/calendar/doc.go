// Package calendar has what depends on the clocks of time zones: cron expressions and quiet hours.
package calendar
