// Package upstream has an origin of package proxy that records its responses: for metrics, for operators, and for the controller of
// adaptive rates.
package upstream

import (
	"reflect"
	"time"

	"github.com/anteroom/anteroom/admission/adaptive"
	"github.com/anteroom/anteroom/gateway/forecast"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/gateway/proxy"
)

// Origin is an origin with the records of its responses.
type Origin struct {
	*proxy.Origin
	config  proxy.Config
	metrics metrics.Origin
	recent  forecast.Recent
	health  *adaptive.Recorder
}

// New returns an origin of a configuration, which records responses in m and health.
func New(c proxy.Config, m metrics.Origin, health *adaptive.Recorder) (*Origin, error) {
	p, err := proxy.New(c)
	if err != nil {
		return nil, err
	}
	return &Origin{Origin: p, config: c, metrics: m, health: health}, nil
}

// Unchanged reports whether the origin is that of a configuration, with the same files.
func (o *Origin) Unchanged(c proxy.Config) bool {
	return reflect.DeepEqual(o.config, c) && o.SameFiles()
}

// LastMinute returns the p95 time to first byte in seconds, and the share of failed requests; zeros without requests.
func (o *Origin) LastMinute(now time.Time) (p95, failed float64) {
	p95, failed, _ = o.recent.Quantile(now, time.Minute, 0.95)
	return p95, failed
}

// Observe counts a request that began at start for the metrics, for operators and for the controller of adaptive rates. trace is the id of
// its trace, empty without one.
func (o *Origin) Observe(out *proxy.Outcome, start time.Time, trace string) {
	if out.FirstByte > 0 {
		metrics.Observe(o.metrics.Seconds, out.FirstByte, trace)
		if class := out.Status / 100; (out.Err == nil || out.Sent) && class >= 1 && class < len(o.metrics.Responses) {
			o.metrics.Responses[class].Inc()
		}
	}
	switch {
	case !clientsFault(out):
		failed := out.Err != nil || out.Status >= 500
		o.recent.Add(start, out.FirstByte.Seconds(), failed)
		o.measure(out, failed, start)
	case out.Kind == proxy.KindClientGone:
		o.measure(out, false, start)
	}
	if c := o.metrics.Errors[out.Kind]; out.Err != nil && c != nil {
		c.Inc()
	}
}

// clientsFault reports whether a client caused a failure, or one client holds so many connections that others get none.
func clientsFault(out *proxy.Outcome) bool {
	switch out.Kind {
	case proxy.KindClientGone, proxy.KindBadRequest, proxy.KindBodyTimeout, proxy.KindBodyLarge, proxy.KindShare:
		return true
	case proxy.KindQueueFull:
		return out.Crowded
	}
	return false
}

// stale is the age at which the time to first byte of a request is no longer counted.
const stale = 10 * time.Second

// impatient is the shortest wait after which a client that leaves counts as slowness of the origin.
const impatient = time.Second

// measure counts a request for the controller of adaptive rates. A client that left after a long wait counts with that wait, because
// an origin that has stopped responding may show no other sign. Tunnels, and streams and downloads that began long ago, do not
// reflect the load of the origin. A failure always counts.
func (o *Origin) measure(out *proxy.Outcome, failed bool, start time.Time) {
	took := out.FirstByte
	switch passed := time.Since(start); {
	case failed:
	case out.Kind == proxy.KindClientGone && took <= 0:
		if took = passed; took < impatient {
			return
		}
	case out.Upgraded || took <= 0 || passed > took+stale:
		return
	}
	o.health.Add(took, failed)
}
