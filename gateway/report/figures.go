package report

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/anteroom/anteroom/admission/series"
)

// Figures are the distributions and sums of a range.
type Figures struct {
	Waits     Waits            `json:"waits"`
	Announced Announced        `json:"told"`
	Funnel    []Stage          `json:"funnel"`
	Losses    []Loss           `json:"losses"`
	Guard     map[string]Count `json:"guard"` // by kind: challenges, proofs, captcha, refused, permits, over_quota
}

// Count is a sum, or sums by outcome.
type Count struct {
	Sum int64
	By  map[string]int64 // nil: only a sum
}

// Class is a number of visitors with waits from From to less than To, s.
type Class struct {
	From  float64 `json:"from_seconds"`
	To    float64 `json:"to_seconds"`
	Count int64   `json:"count"`
}

// Waits are the waits of those who were admitted and of those who left.
type Waits struct {
	Admitted []Class  `json:"admitted"`
	Left     []Class  `json:"left"`
	P50      *float64 `json:"p50_seconds,omitempty"` // of the admitted
	P90      *float64 `json:"p90_seconds,omitempty"`
	P95      *float64 `json:"p95_seconds,omitempty"`
	P99      *float64 `json:"p99_seconds,omitempty"`
}

// Announced compares the first announced waits with the real ones.
type Announced struct {
	Count    int64            `json:"count"`
	Median   *float64         `json:"median_ratio,omitempty"` // of announced over real waits
	Coverage *float64         `json:"coverage,omitempty"`     // share of real waits in the announced range
	Below    int64            `json:"below"`
	Within   int64            `json:"within"`
	Above    int64            `json:"above"`
	ByWait   []AnnouncedClass `json:"by_wait"`
}

// AnnouncedClass compares the waits of a class of real waits.
type AnnouncedClass struct {
	From      float64 `json:"from_seconds"`
	To        float64 `json:"to_seconds"`
	Count     int64   `json:"count"`
	Announced float64 `json:"told_seconds"` // mean
	Real      float64 `json:"real_seconds"` // mean
	Coverage  float64 `json:"coverage"`
}

// Stage is how many visitors reached a stage.
type Stage struct {
	Stage string `json:"stage"`
	Count int64  `json:"count"`
}

// Loss is how many visitors were lost at a stage, and why.
type Loss struct {
	Stage  string `json:"stage"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// classes are the number of the store's classes of waits: four an octave, and one an octave.
const quarters, octaves = 81, 21

// lower returns the lower bound of a class of waits with so many classes an octave.
func lower(class, anOctave int) float64 { return math.Exp2(float64(class)/float64(anOctave)) - 1 }

// classesOf returns the classes of counts with a prefix.
func classesOf(counts map[string]int64, prefix string, n, anOctave int) []Class {
	list := []Class{}
	for i := range n {
		if c := counts[prefix+strconv.Itoa(i)]; c > 0 {
			list = append(list, Class{round(lower(i, anOctave)), round(lower(i+1, anOctave)), c})
		}
	}
	return list
}

// quantile returns the middle of the class of a quantile; nil without counts.
func quantile(list []Class, q float64) *float64 {
	var total int64
	for _, c := range list {
		total += c.Count
	}
	if total == 0 {
		return nil
	}
	want := int64(math.Ceil(q * float64(total)))
	for _, c := range list {
		if want -= c.Count; want <= 0 {
			if c.From == 0 {
				return new(0.0)
			}
			return new(round(math.Sqrt((c.From+1)*(c.To+1)) - 1))
		}
	}
	return nil
}

func round(f float64) float64 { return math.Round(f*1000) / 1000 }

// NewFigures returns the figures of a table.
func NewFigures(t *series.Table) Figures {
	counts := t.Counts()
	f := Figures{Announced: announcedOf(counts), Guard: guardOf(counts)}
	f.Waits = Waits{Admitted: classesOf(counts, "w", quarters, 4), Left: classesOf(counts, "y", octaves, 1)}
	for _, p := range []struct {
		to *(*float64)
		q  float64
	}{{&f.Waits.P50, 0.5}, {&f.Waits.P90, 0.9}, {&f.Waits.P95, 0.95}, {&f.Waits.P99, 0.99}} {
		*p.to = quantile(f.Waits.Admitted, p.q)
	}
	inside, ended := insideOf(t)
	joins, left, admitted, lapsed, claimed := t.Total(series.Joins), counts["x"], t.Total(series.Admissions), t.Total(series.Lapses), t.Total(series.Claims)
	f.Funnel = []Stage{
		{"arrived", counts["arrived"]}, {"challenged", counts["challenged"]}, {"waiting", joins}, {"admitted", admitted}, {"claimed", claimed},
		{"inside", inside}, {"ended", ended},
	}
	for name, n := range counts {
		if reason, ok := strings.CutPrefix(name, "refused."); ok && n > 0 {
			f.Losses = append(f.Losses, Loss{"arrived", reason, n})
		}
	}
	for _, l := range []Loss{{"waiting", "left", left}, {"admitted", "lapsed", lapsed}} {
		if l.Count > 0 {
			f.Losses = append(f.Losses, l)
		}
	}
	order := []string{"arrived", "waiting", "admitted"}
	slices.SortFunc(f.Losses, func(a, b Loss) int {
		if a.Stage != b.Stage {
			return slices.Index(order, a.Stage) - slices.Index(order, b.Stage)
		}
		return strings.Compare(a.Reason, b.Reason)
	})
	if f.Losses == nil {
		f.Losses = []Loss{}
	}
	return f
}

// insideOf returns the sessions at the end of the range, and how many ended in it: as many as were claimed and are no longer inside.
func insideOf(t *series.Table) (inside, ended int64) {
	sessions := func(r *series.Row) (int64, bool) {
		in, known := r.Figures.Known(series.Inside)
		out, also := r.Figures.Known(series.Admitted)
		return max(0, in-out), known && also
	}
	first, last := int64(-1), int64(-1)
	for _, r := range t.Rows {
		if r == nil {
			continue
		}
		if n, known := sessions(r); known {
			if first < 0 {
				first = n
			}
			last = n
		}
	}
	if last < 0 {
		return 0, 0
	}
	return last, max(0, t.Total(series.Claims)+first-last)
}

func announcedOf(counts map[string]int64) Announced {
	t := Announced{Below: counts["below"], Above: counts["above"], ByWait: []AnnouncedClass{}}
	for i := range octaves {
		class := strconv.Itoa(i)
		n := counts["tn"+class]
		if n == 0 {
			continue
		}
		t.Count += n
		t.Within += counts["ti"+class]
		t.ByWait = append(t.ByWait, AnnouncedClass{
			round(lower(i, 1)), round(lower(i+1, 1)), n, round(float64(counts["tt"+class]) / float64(n)), round(float64(counts["tr"+class]) / float64(n)),
			round(float64(counts["ti"+class]) / float64(n)),
		})
	}
	if t.Count == 0 {
		return t
	}
	t.Coverage = new(round(float64(t.Within) / float64(t.Count)))
	half := (t.Count + 1) / 2
	for i := range 41 {
		if half -= counts["e"+strconv.Itoa(i)]; half <= 0 {
			t.Median = new(round(math.Exp2((float64(i) - 19.5) / 4)))
			break
		}
	}
	return t
}

func guardOf(counts map[string]int64) map[string]Count {
	g := map[string]Count{"challenges": {Sum: counts["challenged"]}, "over_quota": {Sum: counts["over_quota"]}}
	for _, kind := range []string{"proofs", "captcha", "refused", "permits"} {
		by := map[string]int64{}
		for name, n := range counts {
			if outcome, ok := strings.CutPrefix(name, kind+"."); ok && n > 0 {
				by[outcome] = n
			}
		}
		g[kind] = Count{By: by}
	}
	return g
}
