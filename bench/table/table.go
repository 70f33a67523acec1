// Package table prints a comparison: medians, their ratio to each peer, and the bars.
package table

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Median returns the median, or the smaller of the two middle values; of no values, 0.
func Median[T cmp.Ordered](xs []T) (median T) {
	if len(xs) > 0 {
		median = slices.Sorted(slices.Values(xs))[(len(xs)-1)/2]
	}
	return median
}

// Quantile returns the value above the share q of all values, at most the highest; of no values, 0.
func Quantile[T cmp.Ordered](xs []T, q float64) (quantile T) {
	if n := len(xs); n > 0 {
		quantile = slices.Sorted(slices.Values(xs))[min(n-1, int(q*float64(n)))]
	}
	return quantile
}

// MedianOf returns the median of one figure of several results.
func MedianOf[R any, T cmp.Ordered](results []R, figure func(R) T) T {
	xs := make([]T, len(results))
	for i, r := range results {
		xs[i] = figure(r)
	}
	return Median(xs)
}

// Turns calls f for n contestants in each round, counted from 1. Each round begins with the next contestant. Turns returns
// the results of each contestant.
func Turns[R any](rounds, n int, f func(round, contestant int) R) [][]R {
	results := make([][]R, n)
	for r := range rounds {
		for k := range n {
			i := (r + k) % n
			results[i] = append(results[i], f(r+1, i))
		}
	}
	return results
}

// Bar is the limit of a figure or of a ratio.
type Bar struct {
	Limit float64
	AtMost,
	Ratio bool // of the ratio to the first peer, else of our figure
}

func (b Bar) text(peer string) string {
	sign := "≥"
	if b.AtMost {
		sign = "≤"
	}
	if b.Ratio {
		return fmt.Sprintf("%s %.2f × %s", sign, b.Limit, peer)
	}
	if b.Limit == 0 {
		return sign + " 0"
	}
	return fmt.Sprintf("%s %s", sign, Figure(b.Limit))
}

func (b Bar) holds(x float64) bool {
	if b.AtMost {
		return x <= b.Limit
	}
	return x >= b.Limit
}

// Row is one line of the table. A zero and a missing peer were not measured.
type Row struct {
	What, Unit string
	Peers      []float64
	Ours       float64
	Counted    bool // a zero was measured
	Bars       []Bar
}

func (r Row) cells(peers []string) []string {
	cells := []string{r.What + ", " + r.Unit}
	for i := range peers {
		x := 0.0
		if i < len(r.Peers) {
			x = r.Peers[i]
		}
		cells = append(cells, Figure(x))
	}
	var bars []string
	for _, b := range r.Bars {
		x := r.Ours
		if b.Ratio {
			x = r.ratio(0)
		}
		text := b.text(peers[0])
		switch {
		case x == 0 && !r.Counted:
		case b.holds(x):
			text += " holds"
		default:
			text += " MISSED"
		}
		bars = append(bars, text)
	}
	ours := Figure(r.Ours)
	if r.Counted && r.Ours == 0 {
		ours = "0"
	}
	cells = append(cells, ours)
	for i := range peers {
		cells = append(cells, ratioText(r.ratio(i)))
	}
	return append(cells, strings.Join(bars, "; "))
}

// ratio returns ours ÷ peer i, and 0 if one of them was not measured.
func (r Row) ratio(i int) float64 {
	if i >= len(r.Peers) || r.Peers[i] <= 0 {
		return 0
	}
	return max(0, r.Ours/r.Peers[i])
}

func ratioText(x float64) string {
	switch {
	case x == 0:
		return "–"
	case x < 0.1:
		return fmt.Sprintf("%.2g", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// Figure formats a number like Number, and a zero as –.
func Figure(x float64) string {
	if x == 0 {
		return "–"
	}
	return Number(x)
}

// Number formats three digits, and all of a longer number with commas between thousands.
func Number(x float64) string {
	if x < 999.5 {
		return fmt.Sprintf("%.3g", x)
	}
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Print prints the table: a column for each peer, then ours, then a ratio to each peer.
func Print(w io.Writer, peers []string, ours string, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintf(t, "median of the rounds\t%s\t%s\tratio to %s\tbar\n", strings.Join(peers, "\t"), ours, strings.Join(peers, "\tto "))
	for _, r := range rows {
		_, _ = fmt.Fprintln(t, strings.Join(r.cells(peers), "\t"))
	}
	return t.Flush() // returns the error of an earlier write
}
