package api

import (
	"math"
	"strconv"

	"github.com/anteroom/anteroom/internal/ophttp"
)

// decimal reads a JSON number with at most three decimal places. wrong describes any other value.
func decimal(raw []byte, least, most float64) (value float64, wrong string) {
	if !ophttp.IsNumber(raw) {
		return 0, "is not a number"
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil || v < least || v > most:
		return 0, "is out of range"
	case math.Round(v*1000)/1000 != v:
		return 0, "has more than three decimal places"
	}
	return v + 0, "" // not −0
}

// whole reads a JSON number without a fraction. wrong describes any other value.
func whole(raw []byte, least, most int64) (value int64, wrong string) {
	if !ophttp.IsNumber(raw) {
		return 0, "is not a number"
	}
	if v, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		if v < least || v > most {
			return 0, "is out of range"
		}
		return v, ""
	}
	v, err := strconv.ParseFloat(string(raw), 64) // 1e3, 5.0
	switch {
	case err != nil || v < float64(least) || v > float64(most):
		return 0, "is out of range"
	case v != math.Trunc(v):
		return 0, "is not a whole number"
	}
	return int64(v), ""
}
