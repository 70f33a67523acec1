package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/anteroom/anteroom/eta"
	"github.com/anteroom/anteroom/internal/config"
)

// learned is the value of eta.weights for the weights that this gateway has observed.
const learned = "learned"

// estimates returns the options of a room's estimator. It also returns the name of the setting that an error concerns.
func estimates(c *config.ETA) (o eta.Options, setting string, err error) {
	o = eta.Options{SecondsPerPlace: c.SecondsPerPlace, ModelMaxAge: c.ModelMaxAge, Weights: eta.DefaultWeights}
	if o.Zone, err = time.LoadLocation(c.TimeZone); err != nil {
		return o, "time_zone", err
	}
	if c.Weights != learned {
		if o.Weights, err = eta.ParseWeights(c.Weights); err != nil {
			return o, "weights", err
		}
	}
	if c.ModelFile == "" {
		return o, "", nil
	}
	o.Model, err = readModel(c.ModelFile)
	return o, "model_file", err
}

func readModel(name string) (*eta.Model, error) {
	info, err := os.Stat(name)
	if err != nil {
		if cause, ok := errors.AsType[*fs.PathError](err); ok {
			err = cause.Err
		}
		return nil, fmt.Errorf("%q cannot be read: %w; check the path and its permissions", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is not a regular file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := eta.ReadModel(f)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	return m, nil
}

func checkEstimates(cfg *config.Config) []config.Problem {
	var problems []config.Problem
	for i := range cfg.Rooms {
		if _, setting, err := estimates(&cfg.Rooms[i].ETA); err != nil && setting != "time_zone" { // Validate reports it
			message := strings.TrimPrefix(strings.Replace(err.Error(), "eta: ", "", 1), "weights: ")
			problems = append(problems, config.Problem{Path: fmt.Sprintf("rooms[%d].eta.%s", i, setting), Message: message})
		}
	}
	return problems
}
