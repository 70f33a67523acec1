package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// median of the runs; the slower middle one where their number is even.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	return s[(len(s)-1)/2]
}

// bar is what a figure or a ratio has to reach.
type bar struct {
	Limit float64
	AtMost,
	Ratio bool // of the ratio to nginx, rather than of our figure
}

func (b bar) String() string {
	sign := "≥"
	if b.AtMost {
		sign = "≤"
	}
	if b.Ratio {
		return fmt.Sprintf("%s %.2f × nginx", sign, b.Limit)
	}
	return fmt.Sprintf("%s %s", sign, figure(b.Limit))
}

// holds is only for figures that are known.
func (b bar) holds(x float64) bool {
	if b.AtMost {
		return x <= b.Limit
	}
	return x >= b.Limit
}

// entry is one row of the table. A zero is a figure that was not taken.
type entry struct {
	What, Unit         string
	Nginx, HAProxy, We float64
	Bars               []bar
}

func (l entry) cells() (cells [6]string) {
	cells = [6]string{l.What + ", " + l.Unit, figure(l.Nginx), figure(l.HAProxy), figure(l.We), "–", ""}
	ratio := 0.0
	if l.Nginx > 0 && l.We > 0 {
		ratio = l.We / l.Nginx
		cells[4] = fmt.Sprintf("%.2f", ratio)
	}
	for i, b := range l.Bars {
		x := l.We
		if b.Ratio {
			x = ratio
		}
		if i > 0 {
			cells[5] += "; "
		}
		cells[5] += b.String()
		switch {
		case x == 0:
		case b.holds(x):
			cells[5] += " holds"
		default:
			cells[5] += " MISSED"
		}
	}
	return cells
}

// figure prints three digits, and – for what was not taken.
func figure(x float64) string {
	switch {
	case x == 0:
		return "–"
	case x >= 1000:
		s := fmt.Sprintf("%.0f", x)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	default:
		return fmt.Sprintf("%.3g", x)
	}
}

func printTable(w io.Writer, lines []entry) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(t, "median of the rounds\tnginx\tHAProxy\tgateway\tratio to nginx\tbar")
	for _, l := range lines {
		c := l.cells()
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", c[0], c[1], c[2], c[3], c[4], c[5])
	}
	return t.Flush() // reports what a write before it ran into
}
