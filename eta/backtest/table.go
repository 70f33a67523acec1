package backtest

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"
)

// The bars for an estimator: the largest errors, the coverage of ranges, the share of jumps.
const (
	SteadyMAPE      = 0.10 // where nothing changes
	AfterMAPE       = 0.25 // from one minute after the flow has doubled or halved
	AbandonmentMAPE = 0.15 // where 30 % of the visitors leave
	LumpsMAPE       = 0.15 // where sessions end together
	SilentMAPE      = 0.10 // where a third of the visitors depart silently; also after a change of the rate
	LeastCoverage   = 0.75
	MostCoverage    = 0.85
	MostJumps       = 0.01
)

// HeldOut is the first seed of the reported scores. Constants may be tuned on seeds up to 100; the example model is trained on
// those from 101.
const HeldOut = 1001

// Row is the result of one estimator in the sales of one name.
type Row struct {
	Sale      string
	Estimator string
	Score     Score
	Misses    []string // bars that the score misses
}

// Table simulates all sales with all contenders, on all processors, and adds up the scores of each name. Sale i is simulated
// with the seed base+i.
func Table(sales []Sale, base uint64, contenders []Contender) []Row {
	scores := make([][]Score, len(sales))
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(runtime.GOMAXPROCS(0), len(sales)) {
		wg.Go(func() {
			for i := range next {
				scores[i] = Run(sales[i], base+uint64(i), contenders)
			}
		})
	}
	for i := range sales {
		next <- i
	}
	close(next)
	wg.Wait()

	var rows []Row
	at := map[string]int{} // first row of a name
	for i, s := range sales {
		first, known := at[s.Name]
		if !known {
			first = len(rows)
			at[s.Name] = first
			for _, c := range contenders {
				rows = append(rows, Row{Sale: s.Name, Estimator: c.Name})
			}
		}
		for j := range contenders {
			rows[first+j].Score.Add(scores[i][j])
		}
	}
	for i := range rows {
		rows[i].findMisses()
	}
	return rows
}

func (r *Row) findMisses() {
	s := r.Score
	miss := func(name string, value, least, most float64) {
		if value < least || value > most {
			r.Misses = append(r.Misses, name)
		}
	}
	switch r.Sale {
	case "steady":
		miss("MAPE", s.MAPE(), 0, SteadyMAPE)
	case "abandonment":
		miss("MAPE", s.MAPE(), 0, AbandonmentMAPE)
	case "lumps":
		miss("MAPE", s.MAPE(), 0, LumpsMAPE)
	case "silent leavers":
		miss("MAPE", s.MAPE(), 0, SilentMAPE)
		miss("after", s.AfterMAPE(), 0, SilentMAPE)
	case "step up", "step down", "new rate":
		miss("after", s.AfterMAPE(), 0, AfterMAPE)
	}
	miss("range", s.Coverage(), LeastCoverage, MostCoverage)
	miss("jumps", s.JumpShare(), 0, MostJumps)
}

// Print writes the rows as a table.
func Print(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "sale\testimator\testimates\tMAPE\tMAE\tunder\tin range\tjumps\t1-3 min after step\tmisses\t")
	last := ""
	for _, r := range rows {
		name := r.Sale
		if name == last {
			name = ""
		}
		last = r.Sale
		s := r.Score
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, r.Estimator, s.Asked, percent(s.MAPE(), 1), seconds(s.MAE()),
			percent(s.UnderShare(), 0), percent(s.Coverage(), 1), percent(s.JumpShare(), 2), percent(s.AfterMAPE(), 1), strings.Join(r.Misses, " "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if s := r.Score; s.Fallbacks > 0 {
			if _, err := fmt.Fprintf(w, "%s, %s: window replaced the model in %d polls: the model is missing, too old, or was not trained on that state of the room\n", r.Sale, r.Estimator, s.Fallbacks); err != nil {
				return err
			}
		}
	}
	return nil
}

func percent(x float64, digits int) string {
	if math.IsNaN(x) {
		return ""
	}
	return fmt.Sprintf("%.*f %%", digits, 100*x)
}

func seconds(x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	return fmt.Sprintf("%.1f s", x)
}

// MarshalJSON returns the figures under their names, without unknown ones.
func (r Row) MarshalJSON() ([]byte, error) {
	s := r.Score
	known := func(x float64) *float64 {
		if math.IsNaN(x) {
			return nil
		}
		return &x
	}
	return json.Marshal(struct {
		Sale      string   `json:"sale"`
		Estimator string   `json:"estimator"`
		Estimates int      `json:"estimates"`
		Unknown   int      `json:"unknown"`
		Fallbacks int      `json:"fallbacks,omitempty"`
		MAPE      *float64 `json:"mape,omitempty"`
		MAE       *float64 `json:"mae_seconds,omitempty"`
		Under     *float64 `json:"under,omitempty"`
		Coverage  *float64 `json:"coverage,omitempty"`
		Jumps     *float64 `json:"jumps,omitempty"`
		First     *float64 `json:"mape_first_minute_after_step,omitempty"`
		After     *float64 `json:"mape_after_step,omitempty"`
		Misses    []string `json:"misses,omitempty"`
	}{r.Sale, r.Estimator, s.Asked, s.Unknown, s.Fallbacks, known(s.MAPE()), known(s.MAE()), known(s.UnderShare()), known(s.Coverage()),
		known(s.JumpShare()), known(share(s.FirstSum, s.First)), known(s.AfterMAPE()), r.Misses})
}
