package settings

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate is visitors (or tokens) per second in thousandths: 2.5/s is 2500.
type Rate int64

// Size is a number of bytes, written as 16KiB, 8MiB or a plain number.
type Size int64

// maxThousandths keeps every rate far from the end of an int64, so that the
// limiter's micro-tokens fit as well.
const maxThousandths = 1_000_000_000_000

// ParseRate reads a plain decimal with at most three places, such as 10, 2.5
// or 0.125. It is never negative.
func ParseRate(text string) (Rate, error) {
	whole, fraction, hasPoint := strings.Cut(text, ".")
	if strings.HasPrefix(text, "-") {
		return 0, errors.New("is negative; use 0 or more")
	}
	if !AllDigits(whole) || hasPoint && !AllDigits(fraction) {
		return 0, errors.New("use a decimal number with at most three places, such as 10 or 2.5")
	}
	if digits := strings.TrimRight(fraction, "0"); len(digits) > 3 {
		return 0, errors.New("has more than three decimal places, which would be lost; round it to thousandths")
	} else {
		fraction = (digits + "000")[:3]
	}
	if whole = strings.TrimLeft(whole, "0"); len(whole) > 10 {
		return 0, fmt.Errorf("is too large; use at most %s", Rate(maxThousandths))
	}
	n, err := strconv.ParseInt(whole+fraction, 10, 64)
	if err != nil {
		return 0, err
	}
	if n > maxThousandths {
		return 0, fmt.Errorf("is too large; use at most %s", Rate(maxThousandths))
	}
	return Rate(n), nil
}

// String returns the rate as ParseRate reads it.
func (r Rate) String() string {
	sign := ""
	n := int64(r)
	if n < 0 {
		sign, n = "-", -n
	}
	text := fmt.Sprintf("%s%d.%03d", sign, n/1000, n%1000)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

// PerSecond returns the rate as a number of visitors a second.
func (r Rate) PerSecond() float64 { return float64(r) / 1000 }

var sizeUnits = []struct {
	suffix string
	shift  uint
}{
	{"PiB", 50}, {"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}, {"", 0},
}

// ParseSize reads a whole number of bytes, plain or with one of the units B,
// KiB, MiB, GiB, TiB and PiB.
func ParseSize(text string) (Size, error) {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(text, unit.suffix)
		if !ok {
			continue
		}
		if !AllDigits(digits) {
			break
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n > math.MaxInt64>>unit.shift {
			return 0, errors.New("is too large; use less than 8192PiB")
		}
		return Size(n << unit.shift), nil
	}
	return 0, errors.New("use a whole number of bytes with or without one of the units B, KiB, MiB, GiB, TiB, PiB, such as 16KiB")
}

// String returns the size with the largest unit that keeps it whole.
func (s Size) String() string {
	if s <= 0 {
		return strconv.FormatInt(int64(s), 10)
	}
	for _, unit := range sizeUnits {
		if unit.shift > 0 && s&(1<<unit.shift-1) == 0 {
			return strconv.FormatInt(int64(s>>unit.shift), 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// ParseDuration reads a duration with its unit; it is never negative.
func ParseDuration(text string) (time.Duration, error) {
	if text == "" || AllDigits(text) && text != "0" {
		return 0, errors.New("use a duration with its unit (ms, s, m, h), such as 30s or 1h30m")
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("use a duration with its unit (ms, s, m, h), such as 30s or 1h30m")
	}
	if d < 0 {
		return 0, errors.New("is negative; use a duration such as 30s")
	}
	return d, nil
}

// FormatDuration returns 10m where time.Duration writes 10m0s.
func FormatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// AllDigits reports whether a text is one decimal digit or more.
func AllDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
