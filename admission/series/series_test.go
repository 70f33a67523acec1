package series

import (
	"reflect"
	"strings"
	"testing"
)

func row(at int64, f func(*Figures)) Row {
	r := Row{At: at, Seconds: 1, Figures: NewFigures()}
	f(&r.Figures)
	return r
}

func TestFigures_HaveKinds(t *testing.T) {
	for i, k := range []byte(Kinds()) {
		if k != 'x' && k != 'l' && k != 'm' {
			t.Errorf("figure %d has the kind %q", i, k)
		}
	}
}

func TestParseRow(t *testing.T) {
	f := NewFigures()
	f[Waiting], f[Wait], f[EmptyIn] = 7, 1250, 9
	text := strings.Replace(f.String(), "1250", "5002:4", 1)
	got, err := ParseRow(Minute, "29666666;4;"+text+" 88;w3=4,refused.full=1,w3=1")
	want := Row{At: 29666666 * 60, Seconds: 4, Figures: f, Counts: map[string]int64{"w3": 5, "refused.full": 1}}
	want.Figures[Wait] = 1251 // 1250.5
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "1;2;3", "x;1;;", "-1;1;;", "1;-1;;", "1;1;q;", "1;1;1:0;", "1;1;1:x;", "1;1;;a", "1;1;;=1", "1;1;;a=-1", "9223372036854775807;1;;", "1;1;;;"} {
		if r, err := ParseRow(Minute, bad); err == nil {
			t.Errorf("%q is read as %+v", bad, r)
		}
	}
}

func FuzzParseRow(f *testing.F) {
	f.Add("29666666;4;1 2 3:4 - -5;w3=4,a.b=1")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRow(TenMinutes, text)
		if err == nil && (r.At < 0 || r.At%600 != 0 || r.Seconds < 0) {
			t.Errorf("%q is read as %+v", text, r)
		}
	})
}

func TestTable(t *testing.T) {
	total := func(at, joins int64) Row { return row(at, func(f *Figures) { f[Joins] = joins }) }
	for _, c := range []struct {
		name  string
		l     Length
		in    Range
		rows  []Row
		sum   int64
		known int // steps with a growth
	}{
		{"each second", Second, Range{101, 104}, []Row{total(103, 9), total(100, 3), total(101, 4), total(102, 4), total(104, 99)}, 6, 3},
		{"the first has none before", Second, Range{101, 104}, []Row{total(101, 4), total(102, 5), total(103, 7)}, 3, 2},
		{"a pause of an idle room", Second, Range{161, 162}, []Row{total(100, 3), total(161, 8)}, 5, 1},
		{"a longer pause", Second, Range{400, 402}, []Row{total(100, 3), total(400, 8), total(401, 9)}, 1, 1},
		{"a new store", Second, Range{101, 103}, []Row{total(100, 50), total(101, 60), total(102, 2)}, 12, 2},
		{"a figure that is not known", Second, Range{101, 103}, []Row{total(100, 1), total(101, Unknown), total(102, 4)}, 0, 0},
		{"minutes", Minute, Range{130, 200}, []Row{total(60, 5), total(120, 7), total(180, 10)}, 5, 2},
		{"a room that has just begun", Minute, Range{120, 200}, []Row{row(120, func(f *Figures) { f[Joins], f[Born] = 7, 100 }), total(180, 10)}, 10, 2},
		{"a room that began before", Minute, Range{240, 300}, []Row{row(240, func(f *Figures) { f[Joins], f[Born] = 7, 100 })}, 0, 0},
		{"nothing", Minute, Range{200, 100}, []Row{total(60, 5)}, 0, 0},
	} {
		table := NewTable(c.l, c.in, c.rows)
		known := 0
		for i := range table.Rows {
			if _, _, ok := table.Delta(i, Joins); ok {
				known++
			}
		}
		if got := table.Total(Joins); got != c.sum || known != c.known {
			t.Errorf("%s: %d over %d steps, want %d over %d", c.name, got, known, c.sum, c.known)
		}
	}
	table := NewTable(Minute, Range{119, 300}, []Row{{At: 120, Counts: map[string]int64{"a": 1}}, {At: 240, Counts: map[string]int64{"a": 2, "b": 3}}})
	if got := table.Counts(); !reflect.DeepEqual(got, map[string]int64{"a": 3, "b": 3}) || table.At(0) != 60 || len(table.Rows) != 4 {
		t.Errorf("%v from %d, %d rows", got, table.At(0), len(table.Rows))
	}
}

func TestReaching(t *testing.T) {
	const now = 1_780_000_000
	for _, c := range []struct {
		ago   int64
		least Length
		want  string
	}{{60, Second, "1s"}, {601, Second, "1m"}, {60, Minute, "1m"}, {86_401, Second, "10m"}, {90 * 86_400, Second, "10m"}} {
		if got := Reaching(now-c.ago, now, c.least); got.Name != c.want {
			t.Errorf("%d s ago: %s, want %s", c.ago, got.Name, c.want)
		}
	}
}
