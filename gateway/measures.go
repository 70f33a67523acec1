package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/metrics"
)

// Measure sets what this gateway measures of a room: the wait of a newcomer, and the counts that the recorded figures of all gateways add up.
// gateway/report has the names of the counts.
func Measure(g *Gateway, room string, m *admission.Measures) {
	r := g.state.Load().byID[room]
	if r == nil {
		return
	}
	if w := r.forecaster.Room().JoinNow(); w.Known {
		m.Known, m.Wait, m.Low, m.High = true, w.Seconds, w.Low, w.High
	}
	m.Counts = map[string]int64{
		"arrived": metrics.Value(r.metrics.Arrivals), "challenged": metrics.Value(r.metrics.Challenges), "over_quota": metrics.Value(r.metrics.OverQuota),
	}
	for prefix, counters := range map[string]map[string]prometheus.Counter{
		"refused.": r.metrics.Refused, "proofs.": r.metrics.Proofs, "captcha.": r.metrics.Captcha, "permits.": r.metrics.Permits,
	} {
		for name, c := range counters {
			m.Counts[prefix+name] = metrics.Value(c)
		}
	}
	announced := r.forecaster.Announcements()
	m.Counts["below"], m.Counts["above"] = announced.Below, announced.Above
	for i, w := range announced.Waits {
		class := strconv.Itoa(i)
		m.Counts["tn"+class], m.Counts["ti"+class], m.Counts["tt"+class], m.Counts["tr"+class] = w.Count, w.Within, w.Announced, w.Real
	}
	for i, n := range announced.Ratios {
		m.Counts["e"+strconv.Itoa(i)] = n
	}
}

// InFlight returns the requests to each origin that this gateway waits for.
func InFlight(g *Gateway) map[string]int {
	st := g.state.Load()
	all := make(map[string]int, len(st.origins))
	for id, u := range st.origins {
		all[id] = u.InUse()
	}
	return all
}
