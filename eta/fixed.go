package eta

// Fixed uses a fixed time for each place and does not learn: SecondsPerPlace, or one over the rate in force, and never less than that.
// In a full room it uses the rate at which sessions end, and the admissions of the last minute.
type Fixed struct {
	SecondsPerPlace float64 // 0: one over the rate in force
}

var _ Estimator = Fixed{}

// Forecast implements Estimator.
func (x Fixed) Forecast(prev *Forecast, in Input) *Forecast { return forecast(x, prev, in) }

func (x Fixed) observe(in *Input, changes []change) observation {
	o := observation{rate: rateOf(x.SecondsPerPlace, in), dispersion: 1, spread: priorError}
	if in.full.is {
		var h history
		h.read(in, changes)
		if s := h.sum(0, blockSeconds); s.busy > 0 {
			known := min(1, s.busy/priorSeconds)
			if o.rate == 0 {
				known = 1
			}
			o.rate = min((1-known)*o.rate+known*s.rate(), in.Rate)
		}
	}
	return o
}
