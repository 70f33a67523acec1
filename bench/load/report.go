package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/verdict"
	"github.com/anteroom/anteroom/bench/visitor"
)

// CrowdReport is the result of a crowd; --json prints it.
type CrowdReport struct {
	Visitors     int           `json:"visitors"`
	Joined       int64         `json:"joined"`
	Admitted     int64         `json:"admitted"`
	Gone         int64         `json:"gone_silently"`
	StillWaiting int64         `json:"still_waiting"`
	Seconds      float64       `json:"seconds"`
	Lost         table.Causes  `json:"lost_places"`
	MovedForward int           `json:"moved_forward"`
	Undated      int           `json:"admitted_without_time"`
	Order        verdict.Order `json:"order"`
	Rate         verdict.Rate  `json:"rate"`
	Estimates    Estimates     `json:"estimates"`
	Joins        Quantiles     `json:"joins"`
	Polls        Quantiles     `json:"polls"`
	Requests     Quantiles     `json:"requests"`
	ConnErrors   int64         `json:"connection_errors"`
	ServerErrors int64         `json:"server_errors"`
	RefusedJoins int64         `json:"refused_joins"`
	BadPasses    int64         `json:"passes_refused"`
	Unexpected   table.Causes  `json:"unexpected_answers,omitempty"`
	Kept         bool          `json:"kept"`
	Admissions   []int64       `json:"admission_times,omitempty"` // µs since 1970, ascending
}

// report judges the run.
func (c *crowd) report(rate, burst verdict.Milli) CrowdReport {
	r := c.counts
	r.Joins, r.Polls, r.Requests = c.joins.quantiles(), c.polls.quantiles(), c.visits.quantiles()
	var times []int64
	var in []verdict.Admission
	for i := range c.people {
		p := &c.people[i]
		if p.Improved {
			r.MovedForward++
		}
		if p.phase != done && p.phase != shopping {
			continue
		}
		if p.admittedAt == 0 {
			r.Undated++
			continue
		}
		times = append(times, p.admittedAt)
		in = append(in, verdict.Admission{
			At: p.admittedAt, Order: p.Order, Ordered: p.Order > 0, Absent: p.absent || p.lost != "",
			Sent: p.joinSent.UnixMicro(), Answered: p.answered.UnixMicro(),
		})
	}
	slices.Sort(times)
	r.Admissions = times
	r.Order, r.Rate = verdict.JudgeOrder(in), verdict.JudgeRate(times, rate, burst)
	r.Estimates = judgeEstimates(c.people, c.start.Add(c.opt.JudgeAfter))
	r.Kept = r.allIn() && len(r.Lost) == 0 && r.BadPasses == 0 && r.Order.Kept() && r.Rate.Kept()
	return r
}

func (r CrowdReport) allIn() bool { return r.Admitted+r.Gone >= int64(r.Visitors) }

func (r CrowdReport) text(w io.Writer) {
	fmt.Fprintf(w, "visitors   %d: %d joined, %d admitted, %d still waiting, in %s\n",
		r.Visitors, r.Joined, r.Admitted, r.StillWaiting, time.Duration(r.Seconds*float64(time.Second)).Round(100*time.Millisecond))
	if r.Gone > 0 {
		fmt.Fprintf(w, "gone       %d stopped polling\n", r.Gone)
	}
	everybody := "in"
	if !r.allIn() {
		everybody = fmt.Sprintf("NOT in: %d missing", int64(r.Visitors)-r.Admitted-r.Gone)
	}
	fmt.Fprintf(w, "everybody  %s\n%s", everybody, placesText(r.Lost))
	if r.MovedForward > 0 {
		fmt.Fprintf(w, " · %d moved forward by the gateway", r.MovedForward)
	}
	o := r.Order
	fmt.Fprint(w, "\n", orderText(o))
	if o.Equal+o.Together+o.Absent > 0 {
		fmt.Fprintf(w, " · %d equal orders, %d admitted together with the next, %d absent for a time", o.Equal, o.Together, o.Absent)
	}
	if r.Undated > 0 {
		fmt.Fprintf(w, " · %d without a time, not judged", r.Undated)
	}
	a := r.Rate
	if a.Judged {
		fmt.Fprintf(w, "\nrate       %s: at most %d in any second, %d allowed", keptText(a.Kept()), a.MaxInSecond, a.Allowed)
		if a.Excess > 0 {
			fmt.Fprintf(w, " · the worst interval is %.6g over rate × length + burst", a.Excess)
		}
	} else {
		fmt.Fprintf(w, "\nrate       at most %d in any second (not judged: give --rate and --burst)", a.MaxInSecond)
	}
	fmt.Fprintln(w)
	r.Estimates.line(w)
	r.Joins.line(w, "joins")
	r.Polls.line(w, "polls")
	r.Requests.line(w, "requests")
	fmt.Fprintf(w, "errors     %d connections, %d responses of 5xx or 429, %d joins refused, %d passes refused\n", r.ConnErrors, r.ServerErrors, r.RefusedJoins, r.BadPasses)
	keys := slices.SortedFunc(maps.Keys(r.Unexpected), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Unexpected[b], r.Unexpected[a]), cmp.Compare(a, b))
	})
	for _, k := range keys {
		fmt.Fprintf(w, "           %6d × %s\n", r.Unexpected[k], k)
	}
}

func keptText(kept bool) string {
	if kept {
		return "kept"
	}
	return "BROKEN"
}

func placesText(lost table.Causes) string {
	if len(lost) == 0 {
		return "places     none lost"
	}
	var text strings.Builder
	lost.Print(&text, " · %d %s")
	return "places     LOST" + text.String()
}

func orderText(o verdict.Order) string {
	return fmt.Sprintf("order      %s: %d inversions (%d visitors overtaken) and %d queue jumps among %d with a token and %d admitted immediately",
		keptText(o.Kept()), o.Inversions, o.Overtaken, o.Queuejumps, o.Compared, o.AtOnce)
}

// shortestWait is the shortest wait whose estimate is judged, in seconds. A percentage of a shorter wait is not significant.
const shortestWait = 5.0

// shownEstimate is an estimate that was shown to a visitor.
type shownEstimate struct {
	at                 int64   // microseconds since 1970
	seconds, low, high float32 // of the wait
}

// Estimates compares the waits that were shown with the waits that followed.
type Estimates struct {
	Count   int     `json:"count"`    // estimates of waits of at least 5 s, of visitors who were admitted
	MAPE    float64 `json:"mape"`     // mean absolute error over the real wait
	Bias    float64 `json:"bias"`     // mean error over the real wait; above 0 the estimates were too long
	InRange float64 `json:"in_range"` // share of the real waits within the range
}

// noteEstimate stores the estimate of a response.
func (p *person) noteEstimate(a *visitor.Response, now time.Time) {
	if e := a.Status.ETA; e != nil && p.phase == waiting {
		p.shown = append(p.shown, shownEstimate{at: now.UnixMicro(), seconds: float32(e.Seconds), low: float32(e.Low), high: float32(e.High)})
	}
}

// judgeEstimates compares the estimates that were shown from a time on with the waits of the admitted visitors.
func judgeEstimates(people []person, from time.Time) Estimates {
	var e Estimates
	var absolute, signed float64
	within := 0
	for i := range people {
		p := &people[i]
		if p.admittedAt == 0 || p.absent || p.lost != "" {
			continue
		}
		for _, t := range p.shown {
			wait := float64(p.admittedAt-t.at) / 1e6
			if t.at < from.UnixMicro() || wait < shortestWait {
				continue
			}
			off := (float64(t.seconds) - wait) / wait
			e.Count++
			absolute += math.Abs(off)
			signed += off
			// Estimates are whole seconds, rounded up.
			if wait > float64(t.low)-1 && wait <= float64(t.high) {
				within++
			}
		}
	}
	if n := float64(e.Count); n > 0 {
		e.MAPE, e.Bias, e.InRange = absolute/n, signed/n, float64(within)/n
	}
	return e
}

func (e Estimates) line(w io.Writer) {
	if e.Count > 0 {
		fmt.Fprintf(w, "estimates  %d of waits of 5 s or more: mean absolute error %.1f %%, bias %+.1f %%, %.1f %% in range\n", e.Count, 100*e.MAPE, 100*e.Bias, 100*e.InRange)
	}
}
