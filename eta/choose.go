package eta

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Options are an estimator's settings; the zero value of each is its default.
type Options struct {
	SecondsPerPlace float64        // of fixed, and the first assumption of all others; 0: one over the rate in force
	Weights         Weights        // of hourly; the zero value: DefaultWeights
	Zone            *time.Location // in which hours of the day are meant; nil: UTC
	Model           *Model         // of model; nil: it is window
	ModelMaxAge     time.Duration  // a model older than this is not used; 0: at any age
}

// estimators by their name in the configuration.
var estimators = map[string]func(Options) Estimator{
	"window": func(o Options) Estimator { return Window{SecondsPerPlace: o.SecondsPerPlace} },
	"fixed":  func(o Options) Estimator { return Fixed{SecondsPerPlace: o.SecondsPerPlace} },
	"ema":    func(o Options) Estimator { return EMA{SecondsPerPlace: o.SecondsPerPlace} },
	"hourly": func(o Options) Estimator {
		if o.Weights == (Weights{}) {
			o.Weights = DefaultWeights
		}
		return Hourly{SecondsPerPlace: o.SecondsPerPlace, Weights: o.Weights, Zone: zone(o.Zone)}
	},
	"model": func(o Options) Estimator {
		return Modelled{Window: Window{SecondsPerPlace: o.SecondsPerPlace}, Model: o.Model, MaxAge: o.ModelMaxAge, Zone: zone(o.Zone)}
	},
}

func zone(z *time.Location) *time.Location {
	if z == nil {
		return time.UTC
	}
	return z
}

// Names returns the names of all estimators, sorted.
func Names() []string { return slices.Sorted(maps.Keys(estimators)) }

// New returns the estimator of a name.
func New(name string, o Options) (Estimator, error) {
	if e, ok := estimators[name]; ok {
		return e(o), nil
	}
	return nil, fmt.Errorf("eta: estimator %q is not known; use one of: %s", name, strings.Join(Names(), ", "))
}
