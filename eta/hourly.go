package eta

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Weights are the factors by which a room's flow differs between the hours of the day.
type Weights [24]float64

// DefaultWeights is a day of a shop: quiet at night, rising over the day, at its height in the evening.
var DefaultWeights = mustWeights("0=0.3 9=1 12=1.5 18=2 22=0.8")

const (
	leastWeight = 0.001
	mostWeight  = 1000
)

// ParseWeights reads hour=weight pairs, as "0=0.3 9=1 12=1.5 18=2 22=0.8". A weight, from 0.001 to 1000, holds until the
// next hour that is named; the last one until the first. Hours are those of the zone, from 0 to 23, ascending.
func ParseWeights(text string) (Weights, error) {
	var w Weights
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return w, fmt.Errorf("eta: weights are empty; use hour=weight pairs, such as %q", "0=0.3 9=1")
	}
	last, first := -1, 0
	weight := 0.0
	for i, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		hour, err := strconv.Atoi(name)
		if err != nil || hour < 0 || hour > 23 {
			return w, fmt.Errorf("eta: weights: %q does not begin with an hour from 0 to 23; use hour=weight pairs with blanks between them, such as 9=1 12=1.5", field)
		}
		if hour <= last {
			return w, fmt.Errorf("eta: weights: hour %d comes after hour %d; name each hour once, in order", hour, last)
		}
		next, err := strconv.ParseFloat(value, 64)
		if err != nil || !(next >= leastWeight && next <= mostWeight) {
			return w, fmt.Errorf("eta: weights: %q does not end with a weight from %v to %v; use hour=weight pairs with blanks between them, such as 9=1 12=1.5", field, leastWeight, mostWeight)
		}
		if i == 0 {
			first = hour
		} else {
			for h := last; h < hour; h++ {
				w[h] = weight
			}
		}
		last, weight = hour, next
	}
	for h := last; h < first+24; h++ {
		w[h%24] = weight
	}
	return w, nil
}

func mustWeights(text string) Weights {
	w, err := ParseWeights(text)
	if err != nil {
		panic(err)
	}
	return w
}

// String returns the form that ParseWeights reads.
func (w Weights) String() string {
	var b strings.Builder
	for h, weight := range w {
		if h == 0 || weight != w[h-1] {
			if h > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%d=%s", h, strconv.FormatFloat(weight, 'g', 4, 64))
		}
	}
	return b.String()
}

// Hourly is Window for rooms whose flow follows the hour of the day, because the origin, its staff or the length of visits does. A
// weight scales the flow: if 10 visitors/s were admitted at weight 1, 15 are expected at 1.5. Admissions of the last quarter of an
// hour are scaled to the weight of this hour. A wait that reaches into other hours is calculated with the weighted flow of each hour,
// up to the rate in force.
type Hourly struct {
	SecondsPerPlace float64 // as in Window
	Weights         Weights // a Predictor that has learned weights uses those
	Zone            *time.Location
}

var (
	_ Estimator = Hourly{}
	_ clock     = Hourly{}
)

// Forecast implements Estimator.
func (x Hourly) Forecast(prev *Forecast, in Input) *Forecast {
	if in.hours != nil {
		x.Weights = *in.hours
	}
	return forecast(x, prev, in)
}

func (x Hourly) weightAt(wall int64) (weight float64, until int64) {
	t := time.UnixMicro(wall).In(x.Zone)
	hour := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), 0, 0, 0, x.Zone)
	for end := hour.Add(time.Hour); ; end = end.Add(time.Hour) {
		if end.After(t) {
			return x.Weights[t.Hour()], end.UnixMicro()
		}
	}
}

func (x Hourly) observe(in *Input, changes []change) observation {
	var h history
	h.read(in, changes)
	weight, until := x.weightAt(in.wall())
	begin := until - 3600e6 // of the hour; time zones that change by part of an hour are off
	if age := int(math.Ceil(float64(in.wall()-begin) / 1e6)); age < MaxBuckets {
		before, _ := x.weightAt(begin - 1)
		for i := max(age, 0); i < MaxBuckets; i++ {
			h.admitted[i] *= weight / before
		}
	}
	return Window{SecondsPerPlace: x.SecondsPerPlace}.weigh(in, &h)
}

// hours learns weights from the admissions of each hour of the day, and the time in it in which admission was wanted.
type hours struct {
	admitted, busy [24]float64
	last           int64 // room second up to which buckets are counted
	day            int64 // day of the last fading
}

const (
	dayFade  = 0.7 // factor of the counts with each new day
	hourBusy = 300 // least busy time of an hour with a learned weight, s
)

// add counts the admissions and the busy time of some seconds of an hour.
func (h *hours) add(wall int64, z *time.Location, admitted, busy float64) {
	t := time.UnixMicro(wall).In(z)
	if day := wall / 86400e6; day != h.day {
		if h.day != 0 {
			for i := range h.busy {
				h.admitted[i] *= dayFade
				h.busy[i] *= dayFade
			}
		}
		h.day = day
	}
	h.admitted[t.Hour()] += admitted
	h.busy[t.Hour()] += busy
}

// note counts the buckets that are new since the last call.
func (h *hours) note(in *Input, z *time.Location) {
	now := floorSeconds(in.Now)
	if h.last > now {
		h.last = 0
	}
	for i := len(in.Buckets) - 1; i >= 0 && in.Buckets[i].Second > h.last; i-- {
		if b := in.Buckets[i]; b.Second < now && b.Busy >= leastBusy {
			h.add(in.wall()-(now-b.Second)*1e6, z, float64(max(b.Admitted, 0)), min(b.Busy, 1))
		}
	}
	h.last = now - 1
}

// weights returns the learned weights, about 1 on average. Hours with too little data have their given weight, scaled to the others. It
// returns nil until two hours have enough data.
func (h *hours) weights(given Weights) *Weights {
	var sum, seen, scale float64
	known := 0
	for i, busy := range h.busy {
		if busy >= hourBusy && h.admitted[i] > 0 {
			known++
			sum += h.admitted[i]
			seen += busy
			scale += given[i] * busy
		}
	}
	if known < 2 {
		return nil
	}
	var w Weights
	mean := sum / seen
	for i, busy := range h.busy {
		if busy >= hourBusy && h.admitted[i] > 0 {
			w[i] = h.admitted[i] / busy / mean
		} else {
			w[i] = given[i] * seen / scale
		}
		w[i] = min(max(w[i], leastWeight), mostWeight)
	}
	return &w
}
