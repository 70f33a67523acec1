package eta

import "time"

// Predictor makes a room's forecasts one after the other, and learns from their errors. It is not for concurrent use.
type Predictor struct {
	estimator Estimator
	learn     bool // the weights of hours
	given     Weights
	zone      *time.Location
	last      *Forecast
	ledger    ledger
	hours     hours
}

// NewPredictor returns a Predictor. With learn, Hourly uses the learned weights, once there are any.
func NewPredictor(e Estimator, learn bool) *Predictor {
	p := &Predictor{estimator: e, learn: learn, zone: time.UTC}
	if x, ok := e.(Hourly); ok {
		p.given, p.zone = x.Weights, x.Zone
	} else {
		p.learn = false
	}
	return p
}

// Replace changes the estimator. The errors that were learned of the room stay.
func (p *Predictor) Replace(e Estimator, learn bool) {
	next := NewPredictor(e, learn)
	p.estimator, p.learn, p.given = next.estimator, next.learn, next.given
	if next.zone.String() != p.zone.String() {
		p.zone, p.hours = next.zone, hours{}
	}
}

// Forecast makes the next forecast. in.Buckets is not kept.
func (p *Predictor) Forecast(in Input) *Forecast {
	if p.learn {
		p.hours.note(&in, p.zone)
		in.hours = p.hours.weights(p.given)
	}
	f := p.estimator.Forecast(p.last, in)
	if in.Ahead != nil {
		p.ledger.closePassed(&in, f)
		p.ledger.ranges(f)
		p.ledger.promise(&in, f)
	}
	p.last = f
	return f
}

// AddMinute adds a past minute to the learned hourly weights: its beginning (µs since 1970), the number of admissions, and the
// seconds in which the queue was not empty.
func (p *Predictor) AddMinute(wall int64, admitted int64, busy float64) {
	p.hours.add(wall, p.zone, float64(max(admitted, 0)), min(max(busy, 0), 60))
}

// AddOutcome adds a wait that ended, in seconds, and its promise, which another gateway or this one before a restart may have made. The
// promise counts while the predictor has tracked too few of that length itself.
func (p *Predictor) AddOutcome(promised, real float64) { p.ledger.addOutcome(promised, real) }

// Held returns the number of the last waits that were within their range, and the number of all, up to 1024.
func (p *Predictor) Held() (within, all int) { return p.ledger.held() }
