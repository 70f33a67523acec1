package report

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"when": func(t Time) string { return time.UnixMicro(int64(t)).UTC().Format("2006-01-02 15:04:05") }, "span": span, "percent": percent,
	"decimal": func(f *float64) string { return cmp.Or(decimal(f), "–") }, "text": text, "plot": plot, "bar": bar,
	"seconds": func(f *float64) string {
		if f == nil {
			return "–"
		}
		return span(*f)
	},
	"group": group,
}).Parse(page))

// WriteHTML writes the report as a page that needs nothing else and prints well.
func (r *Report) WriteHTML(w io.Writer) error { return pageTemplate.Execute(w, r) }

// GuardRows returns the verdicts of the guard: kind, outcome and number.
func (r *Report) GuardRows() (rows [][3]string) {
	for _, kind := range slices.Sorted(maps.Keys(r.Guard)) {
		c := r.Guard[kind]
		if c.By == nil {
			rows = append(rows, [3]string{kind, "", whole(c.Sum)})
			continue
		}
		for _, outcome := range slices.Sorted(maps.Keys(c.By)) {
			rows = append(rows, [3]string{kind, outcome, whole(c.By[outcome])})
		}
	}
	return rows
}

// Highest returns the highest of a list of counts, at least 1.
func highest(list []Class) int64 {
	most := int64(1)
	for _, c := range list {
		most = max(most, c.Count)
	}
	return most
}

// bar returns the length of a bar, as a share of the longest of its list in percent.
func bar(c Class, list []Class) string {
	return fmt.Sprintf("%.1f", 100*float64(c.Count)/float64(highest(list)))
}

// span returns a time in s.
func span(s float64) string {
	switch {
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 120:
		return fmt.Sprintf("%.0f s", s)
	case s < 7200:
		return fmt.Sprintf("%.0f min", s/60)
	}
	return fmt.Sprintf("%.1f h", s/3600)
}

func percent(f *float64) string {
	if f == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100**f)
}

// group returns a number with a thin space before each three digits.
func group(n int64) string {
	t := whole(n)
	var b strings.Builder
	for i, c := range t {
		if i > 0 && (len(t)-i)%3 == 0 && t[i-1] != '-' {
			b.WriteRune('\u202f')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// text returns the fields of a change.
func text(fields map[string]any) string {
	if len(fields) == 0 {
		return ""
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return fmt.Sprint(fields)
	}
	return string(b)
}

// Plot is a line plot of the steps.
type Plot struct {
	Top   string
	Span  string // times of the first and the last step that is drawn
	Lines []Line
}

// Line is a line of a plot: points of an SVG path.
type Line struct {
	Name, Path string
	Class      string
}

// Size of a plot in user units.
const plotWidth, plotHeight = 720.0, 140.0

// plot returns the lines of named figures of the steps: waiting, rates or origin.
func plot(r *Report, kind string) Plot {
	type line struct {
		name string
		of   func(*Step) *float64
	}
	whole := func(of func(*Step) *int64) func(*Step) *float64 {
		return func(s *Step) *float64 {
			if v := of(s); v != nil {
				return new(float64(*v))
			}
			return nil
		}
	}
	var lines []line
	unit := ""
	switch kind {
	case "waiting":
		lines = []line{{"waiting", whole(func(s *Step) *int64 { return s.Waiting })}, {"inside", whole(func(s *Step) *int64 { return s.Inside })}}
	case "rates":
		unit = "/s"
		lines = []line{{"limit", func(s *Step) *float64 { return s.Limit }}, {"joins", func(s *Step) *float64 { return s.Joins }}, {"admitted", func(s *Step) *float64 { return s.Admitted }}}
	default:
		unit = " s"
		lines = []line{{"p95", func(s *Step) *float64 { return s.P95 }}}
	}
	top := 0.0
	for i := range r.Steps {
		for _, l := range lines {
			if v := l.of(&r.Steps[i]); v != nil {
				top = max(top, *v)
			}
		}
	}
	p := Plot{Top: decimal(new(round(top))) + unit}
	top = cmp.Or(top, 1)
	from, to := r.recorded()
	if from < to {
		p.Span = r.Steps[from].At.clock() + " to " + r.Steps[to-1].At.clock()
	}
	for n, l := range lines {
		var path strings.Builder
		pen := "M"
		for i := from; i < to; i++ {
			v := l.of(&r.Steps[i])
			if v == nil {
				pen = "M"
				continue
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", pen, plotWidth*(float64(i-from)+0.5)/float64(to-from), plotHeight*(1-*v/top))
			if pen == "M" {
				path.WriteString("h0.1") // a single point is visible
			}
			pen = "L"
		}
		p.Lines = append(p.Lines, Line{l.name, path.String(), fmt.Sprintf("line%d", n)})
	}
	return p
}

// recorded returns the steps that plots draw: from the first with a record to the last, so that a sale of an hour is not a stroke in an empty day.
func (r *Report) recorded() (from, to int) {
	is := func(s Step) bool { return s.Waiting != nil || s.Limit != nil || s.P95 != nil }
	if from = slices.IndexFunc(r.Steps, is); from < 0 {
		return 0, 0
	}
	to = len(r.Steps)
	for !is(r.Steps[to-1]) {
		to--
	}
	return from, to
}

// clock returns the time without its seconds.
func (t Time) clock() string { return time.UnixMicro(int64(t)).UTC().Format("2006-01-02 15:04") }

// GapSeconds returns the time without a record.
func (r *Report) GapSeconds() float64 { return float64(r.Gaps) }

// SharePointer returns the share for the page.
func (a Abandonment) SharePointer() *float64 { return &a.Share }

// CoveragePointer returns the coverage for the page.
func (t AnnouncedClass) CoveragePointer() *float64 { return &t.Coverage }
