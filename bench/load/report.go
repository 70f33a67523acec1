package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bench/verdict"
)

// CrowdReport is the result of a crowd; --json prints it.
type CrowdReport struct {
	Visitors     int            `json:"visitors"`
	Joined       int64          `json:"joined"`
	Admitted     int64          `json:"admitted"`
	Abandoned    int64          `json:"abandoned"`
	Gone         int64          `json:"gone_silently"`
	StillWaiting int64          `json:"still_waiting"`
	Seconds      float64        `json:"seconds"`
	Lost         map[string]int `json:"lost_places"`
	MovedForward int            `json:"moved_forward"`
	Undated      int            `json:"admitted_without_time"` // admitted on a page, which does not carry the time
	Order        verdict.Order  `json:"order"`
	Rate         verdict.Rate   `json:"rate"`
	Estimates    Estimates      `json:"estimates"`
	Joins        Quantiles      `json:"joins"`
	Polls        Quantiles      `json:"polls"`
	Requests     Quantiles      `json:"requests"`
	ConnErrors   int64          `json:"connection_errors"`
	ServerErrors int64          `json:"server_errors"`
	RefusedJoins int64          `json:"refused_joins"`
	BadPasses    int64          `json:"passes_refused"`
	Unexpected   map[string]int `json:"unexpected_answers,omitempty"`
	Kept         bool           `json:"kept"`
	Admissions   []int64        `json:"admission_times,omitempty"` // µs since 1970, ascending
}

func (c *crowd) report(rate, burst verdict.Milli) CrowdReport {
	n := &c.counts
	r := CrowdReport{
		Visitors: c.opt.Visitors, Joined: n.joined.Load(), Admitted: n.admitted.Load(), Abandoned: n.left.Load(), Gone: n.gone.Load(),
		StillWaiting: n.waiting.Load(), Seconds: c.finished.Sub(c.started).Seconds(), Lost: map[string]int{},
		Joins: c.joins.quantiles(), Polls: c.polls.quantiles(), Requests: c.visits.quantiles(),
		ConnErrors: n.connErrors.Load(), ServerErrors: n.serverErrors.Load(),
		RefusedJoins: n.refusedJoins.Load(), BadPasses: n.badPasses.Load(), Unexpected: c.oddities,
	}
	var times []int64
	var in []verdict.Admission
	for i := range c.people {
		p := &c.people[i]
		if p.lost != "" {
			r.Lost[p.lost]++
		}
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
	r.Estimates = judgeEstimates(c.people, c.started.Add(c.opt.JudgeAfter))
	r.Kept = r.allIn() && len(r.Lost) == 0 && r.BadPasses == 0 && r.Order.Kept() && r.Rate.Kept()
	return r
}

func (r CrowdReport) allIn() bool { return r.Admitted+r.Abandoned+r.Gone >= int64(r.Visitors) }

func (r CrowdReport) text(w io.Writer) {
	either := func(kept bool, good, bad string) string {
		if kept {
			return good
		}
		return bad
	}
	fmt.Fprintf(w, "visitors   %d: %d joined, %d let in, %d left the line, %d still waiting, in %s\n",
		r.Visitors, r.Joined, r.Admitted, r.Abandoned, r.StillWaiting, time.Duration(r.Seconds*float64(time.Second)).Round(100*time.Millisecond))
	if r.Gone > 0 {
		fmt.Fprintf(w, "gone       %d without a word\n", r.Gone)
	}
	fmt.Fprintf(w, "everybody  %s\n", either(r.allIn(), "in", fmt.Sprintf("NOT in: %d missing", int64(r.Visitors)-r.Admitted-r.Abandoned-r.Gone)))
	fmt.Fprintf(w, "places     %s", either(len(r.Lost) == 0, "none lost", "LOST"))
	for _, why := range slices.Sorted(maps.Keys(r.Lost)) {
		fmt.Fprintf(w, " · %d %s", r.Lost[why], why)
	}
	if r.MovedForward > 0 {
		fmt.Fprintf(w, " · %d moved forward by the gateway", r.MovedForward)
	}
	o := r.Order
	fmt.Fprintf(w, "\norder      %s: %d inversions (%d visitors overtaken) and %d queue jumps among %d with a token and %d let in at once",
		either(o.Kept(), "kept", "BROKEN"), o.Inversions, o.Overtaken, o.Queuejumps, o.Compared, o.AtOnce)
	if o.Equal+o.Together+o.Absent > 0 {
		fmt.Fprintf(w, " · %d equal orders, %d admitted together with the next, %d out of touch", o.Equal, o.Together, o.Absent)
	}
	if r.Undated > 0 {
		fmt.Fprintf(w, " · %d without a time, not judged", r.Undated)
	}
	a := r.Rate
	if a.Judged {
		fmt.Fprintf(w, "\nrate       %s: at most %d in any second, %d allowed", either(a.Kept(), "kept", "BROKEN"), a.MaxInSecond, a.Allowed)
		if a.Excess > 0 {
			fmt.Fprintf(w, " · the worst interval is %.6g over rate × length + burst", a.Excess)
		}
	} else {
		fmt.Fprintf(w, "\nrate       at most %d in any second (not judged: give --rate and --burst)", a.MaxInSecond)
	}
	fmt.Fprintln(w)
	r.Estimates.line(w)
	for _, q := range []struct {
		name string
		Quantiles
	}{{"joins", r.Joins}, {"polls", r.Polls}, {"requests", r.Requests}} {
		q.line(w, q.name)
	}
	fmt.Fprintf(w, "errors     %d connections, %d answers of 5xx or 429, %d joins refused, %d passes refused\n", r.ConnErrors, r.ServerErrors, r.RefusedJoins, r.BadPasses)
	keys := slices.SortedFunc(maps.Keys(r.Unexpected), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Unexpected[b], r.Unexpected[a]), cmp.Compare(a, b))
	})
	for _, k := range keys {
		fmt.Fprintf(w, "           %6d × %s\n", r.Unexpected[k], k)
	}
}
