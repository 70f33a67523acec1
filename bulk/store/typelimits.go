package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// TypeLimit limits the jobs of one type over all processes, to protect the service that their processor calls. Zero
// means no limit.
type TypeLimit struct {
	Rate        float64 // jobs a second, by their cost, up to three decimals
	Concurrency int64   // most running at once
	Batch       int64   // most of one pull
}

// MaxTypeConcurrency is the largest TypeLimit.Concurrency and Batch.
const MaxTypeConcurrency = 1_000_000

func (l TypeLimit) check() error {
	switch {
	case !validRate(l.Rate):
		return fmt.Errorf("rate %v: use 0 (no limit), or 0.001 to 1000000 jobs a second", l.Rate)
	case l.Concurrency < 0 || l.Concurrency > MaxTypeConcurrency:
		return fmt.Errorf("concurrency %d: use 0 (no limit) to %d", l.Concurrency, MaxTypeConcurrency)
	case l.Batch < 0 || l.Batch > MaxTypeConcurrency:
		return fmt.Errorf("batch %d: use 0 (no limit) to %d", l.Batch, MaxTypeConcurrency)
	}
	return nil
}

func validRate(r float64) bool { return r == 0 || r >= 0.001 && r <= 1e6 }

// typeWords returns the limits of types in the form that pulls pass.
func typeWords(types map[string]TypeLimit) (string, error) {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(types)) {
		l := types[name]
		if err := l.check(); err != nil {
			return "", fmt.Errorf("limits of type %q: %w", name, err)
		}
		if name == "" || strings.ContainsAny(name, " \t\r\n") {
			return "", fmt.Errorf("limits of type %q: a type must not be empty or contain blanks or line ends", name)
		}
		if l != (TypeLimit{}) {
			words = append(words, fmt.Sprintf("%s %d %d %d", name, thousandths(l.Rate), l.Concurrency, l.Batch))
		}
	}
	return strings.Join(words, " "), nil
}

// TypeLimits are the limits of one type that are in force.
type TypeLimits struct {
	TypeLimit
	Live    bool  // an operator has set the rate or the concurrency
	Running int64 // runs that count towards the concurrency: those started since it was set
}

// TypeLimitPatch changes the given limits of one type. A given nil returns to the configuration.
type TypeLimitPatch struct {
	Rate                        *float64
	Concurrency                 *int64
	RateGiven, ConcurrencyGiven bool
}

// fields returns the arguments of rates_set.
func (p TypeLimitPatch) fields(name string) ([]any, error) {
	var fields []any
	if p.RateGiven {
		value := ""
		if p.Rate != nil {
			if !validRate(*p.Rate) {
				return nil, refuse(CodeInvalid, "processors.%s.rate %v: use 0 (no limit), or 0.001 to 1000000 jobs a second", name, *p.Rate)
			}
			value = strconv.FormatInt(thousandths(*p.Rate), 10)
		}
		fields = append(fields, "rate/"+name, value)
	}
	if p.ConcurrencyGiven {
		value := ""
		if p.Concurrency != nil {
			if err := (TypeLimit{Concurrency: *p.Concurrency}).check(); err != nil {
				return nil, refuse(CodeInvalid, "processors.%s.%v", name, err)
			}
			value = strconv.FormatInt(*p.Concurrency, 10)
		}
		fields = append(fields, "concurrency/"+name, value)
	}
	return fields, nil
}

// typeLimits merges configured and live limits and reads their use.
func (s rateStore) typeLimits(ctx context.Context, live string) (map[string]TypeLimits, error) {
	limits := map[string]TypeLimits{}
	for name, l := range s.conf.Load().Types {
		if l != (TypeLimit{}) {
			limits[name] = TypeLimits{TypeLimit: l}
		}
	}
	words := strings.Fields(live)
	for i := 0; i+2 < len(words); i += 3 {
		l := limits[words[i]]
		l.Live = true
		if rate, err := strconv.ParseInt(words[i+1], 10, 64); err == nil {
			l.Rate = float64(rate) / 1000
		}
		if most, err := strconv.ParseInt(words[i+2], 10, 64); err == nil {
			l.Concurrency = most
		}
		limits[words[i]] = l
	}
	if len(limits) == 0 {
		return limits, nil
	}
	names := slices.Sorted(maps.Keys(limits))
	fields := make([]string, len(names))
	for i, name := range names {
		fields[i] = "use:" + name
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	used, err := s.o.Client.HMGet(ctx, s.keys[keyState], fields...).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	for i, name := range names {
		if w := strings.Fields(asString(used[i])); len(w) >= 5 {
			l := limits[name]
			l.Running = asInt(w[3])
			limits[name] = l
		}
	}
	return limits, nil
}
