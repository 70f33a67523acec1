package outbound

import (
	"net/http"
	"strings"
	"time"
)

// MaxRetryAfter is the longest Retry-After that is obeyed.
const MaxRetryAfter = time.Hour

// ParseRetryAfter parses a Retry-After, seconds or an HTTP date (RFC 9110, 10.2.3), and returns 0…MaxRetryAfter. It
// returns 0 for an empty, past or invalid value.
func ParseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	seconds, digits := int64(0), true
	for _, c := range []byte(value) {
		if c < '0' || c > '9' {
			digits = false
			break
		}
		seconds = min(seconds*10+int64(c-'0'), int64(MaxRetryAfter/time.Second))
	}
	if digits {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter)
}
