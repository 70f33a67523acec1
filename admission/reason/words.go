package reason

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// span returns a time, µs, in at most two units.
func span(us int64) string {
	s := (max(0, us) + 500_000) / 1_000_000
	switch {
	case s < 120:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	}
	return fmt.Sprintf("%d days", s/86400)
}

// clock returns a moment, µs.
func clock(us int64) string { return time.UnixMicro(us).UTC().Format("15:04:05 UTC") }

// number returns a whole number with a comma before each three digits.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, c := range text {
		if i > 0 && (len(text)-i)%3 == 0 && text[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// count returns a number with its noun.
func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

// perSecond returns a rate in thousandths: one decimal place, or as many as a smaller one needs.
func perSecond(thousandths int64) string {
	switch {
	case thousandths%100 != 0 && thousandths < 10_000:
		return strings.TrimRight(fmt.Sprintf("%.3f", float64(thousandths)/1000), "0") + "/s"
	case thousandths >= 1_000_000:
		return number(thousandths/1000) + "/s"
	}
	return fmt.Sprintf("%.1f/s", float64(thousandths)/1000)
}

// percent returns a share.
func percent(share float64) string {
	return strconv.FormatFloat(float64(int64(share*1000+0.5))/10, 'f', -1, 64) + " %"
}
