package series

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Unknown is the value of a figure that is not known.
const Unknown = math.MinInt64

// Figures are the figures of a row by Figure.
type Figures [Count]int64

// NewFigures returns figures of which none is known.
func NewFigures() (f Figures) {
	for i := range f {
		f[i] = Unknown
	}
	return f
}

// String returns the form of series_record.
func (f *Figures) String() string {
	words := make([]string, Count)
	for i, v := range f {
		if words[i] = "-"; v != Unknown {
			words[i] = strconv.FormatInt(v, 10)
		}
	}
	return strings.Join(words, " ")
}

// Known returns a figure, false if it is not known.
func (f *Figures) Known(i Figure) (int64, bool) { return f[i], f[i] != Unknown }

// Row is one row: the figures and counts of a time.
type Row struct {
	At      int64 // its start, seconds of Redis's clock
	Seconds int64 // that were recorded in it
	Figures Figures
	Counts  map[string]int64 // by name; nil: none
}

// ParseRow reads a row of a length in the form of series_record. Figures that a newer version has added are left out.
func ParseRow(l Length, text string) (Row, error) {
	r := Row{Figures: NewFigures()}
	parts := strings.Split(text, ";")
	if len(parts) != 4 {
		return r, fmt.Errorf("series: row %q", text)
	}
	slot, err1 := strconv.ParseInt(parts[0], 10, 64)
	n, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err1 != nil || err2 != nil || slot < 0 || slot > math.MaxInt64/l.Seconds || n < 0 {
		return r, fmt.Errorf("series: row %q", text)
	}
	r.At, r.Seconds = slot*l.Seconds, n
	for i, word := range strings.Fields(parts[2]) {
		if i == Count {
			break
		}
		v, err := parseFigure(word)
		if err != nil {
			return r, fmt.Errorf("series: row %q: %w", text, err)
		}
		r.Figures[i] = v
	}
	for pair := range strings.SplitSeq(parts[3], ",") {
		if pair == "" {
			continue
		}
		name, number, _ := strings.Cut(pair, "=")
		v, err := strconv.ParseInt(number, 10, 64)
		if err != nil || name == "" || v < 0 {
			return r, fmt.Errorf("series: row %q: count %q", text, pair)
		}
		if r.Counts == nil {
			r.Counts = map[string]int64{}
		}
		r.Counts[name] += v
	}
	return r, nil
}

// parseFigure reads a figure, or the mean of a sum and a number.
func parseFigure(word string) (int64, error) {
	if word == "-" {
		return Unknown, nil
	}
	sum, number, isMean := strings.Cut(word, ":")
	v, err := strconv.ParseInt(sum, 10, 64)
	if err != nil || !isMean {
		return v, err
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("mean %q", word)
	}
	return int64(math.Round(float64(v) / float64(n))), nil
}
