package series

import "slices"

// Range is a range of time in seconds of Redis's clock: From is in it, To is not.
type Range struct{ From, To int64 }

// Holds reports whether a moment is in the range.
func (r Range) Holds(at int64) bool { return at >= r.From && at < r.To }

// Table has a line for each step of a range, in order of time. A step without a row is nil.
type Table struct {
	Length Length
	From   int64 // start of the first step
	Rows   []*Row
	before *Row // the last one before From, if it is not older than the longest pause between two rows
}

// longestPause is the time for which the totals of a row count as those of the start of the next, s: an idle room has a row a minute.
const longestPause = 120

// NewTable returns the table of a range. rows may be in any order, and may lie outside of the range.
func NewTable(l Length, in Range, rows []Row) Table {
	from := in.From - mod(in.From, l.Seconds)
	t := Table{Length: l, From: from}
	if in.To <= from {
		return t
	}
	t.Rows = make([]*Row, (in.To-from+l.Seconds-1)/l.Seconds)
	for i := range rows {
		r := &rows[i]
		switch at := (r.At - from) / l.Seconds; {
		case r.At < from && from-r.At-l.Seconds <= max(longestPause, l.Seconds) && r.Seconds > 0 && (t.before == nil || t.before.At < r.At):
			t.before = r
		case r.At >= from && at < int64(len(t.Rows)):
			t.Rows[at] = r
		}
	}
	return t
}

func mod(a, b int64) int64 { return (a%b + b) % b }

// Before returns the last row before the range; nil if it is too old for its totals to be those of the start.
func (t *Table) Before() *Row { return t.before }

// At returns the start of a step.
func (t *Table) At(i int) int64 { return t.From + int64(i)*t.Length.Seconds }

// Value returns a figure of a step; false if it is not known.
func (t *Table) Value(i int, f Figure) (int64, bool) {
	if t.Rows[i] == nil {
		return 0, false
	}
	return t.Rows[i].Figures.Known(f)
}

// Delta returns by how much a total has grown in a step since the row before, and the seconds between the two; false if one of them is not
// known. A total that is smaller than before has begun again at 0, with a new store, and that of a room which has just begun was 0 before.
func (t *Table) Delta(i int, f Figure) (grown, seconds int64, ok bool) {
	v, known := t.Value(i, f)
	if !known {
		return 0, 0, false
	}
	before, at := t.before, int64(0)
	for k := i - 1; k >= 0; k-- {
		if r := t.Rows[k]; r != nil && r.Seconds > 0 {
			before = r
			break
		}
	}
	if before != nil {
		at = before.At
	}
	if before == nil || t.At(i)-at > max(longestPause, 2*t.Length.Seconds) {
		born, known := t.Value(i, Born)
		return v, t.Length.Seconds, known && born >= t.At(i)-longestPause
	}
	was, known := before.Figures.Known(f)
	if !known {
		return 0, 0, false
	}
	if v < was {
		was = 0
	}
	return v - was, t.At(i) - at, true
}

// Total returns by how much a total has grown over all steps.
func (t *Table) Total(f Figure) (sum int64) {
	for i := range t.Rows {
		if n, _, ok := t.Delta(i, f); ok {
			sum += n
		}
	}
	return sum
}

// Counts returns the sums of the counts of all steps.
func (t *Table) Counts() map[string]int64 {
	sum := map[string]int64{}
	for _, r := range t.Rows {
		if r == nil {
			continue
		}
		for name, n := range r.Counts {
			sum[name] += n
		}
	}
	return sum
}

// Reaching returns the shortest length, of least or more, whose rows reach back to from at now; the longest if none does.
func Reaching(from, now int64, least Length) Length {
	for _, l := range Lengths {
		if l.Seconds >= least.Seconds && now-from <= l.Seconds*l.Rows {
			return l
		}
	}
	return Lengths[len(Lengths)-1]
}

// Sort sorts rows by time.
func Sort(rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int { return int(a.At - b.At) })
}
