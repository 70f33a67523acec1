package eta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Model is a set of regression trees from tools/eta-train that predict the factor by which window's estimate is wrong. It is
// immutable.
type Model struct {
	Trained time.Time
	base    float64 // start of the sum: natural logarithm of real over window's wait
	most    float64 // bound of the absolute sum
	low     [features]float64
	high    [features]float64
	trees   [][]node
}

type node struct {
	feature     int16 // negative: a leaf
	left, right int16
	value       float64 // of a leaf; else the threshold: left if the feature is at most value
}

// features of a model, in this order.
const features = 9

// FeatureNames are the names of the features, as in a model's file and in the examples for its training.
//
//	log_seconds  natural logarithm of window's estimate, s
//	hour         of the day now, 0 to 24, in the room's time zone
//	hour_then    of the day at the end of window's estimate
//	minute       natural logarithm of the last minute's rate over window's
//	five         of the last five minutes' rate over window's
//	quarter      of the last fifteen minutes' rate over window's
//	used         window's rate over the rate in force
//	full         active over max_active, 0 without a limit
//	gone         share of the tickets at the front that are absent
var FeatureNames = [features]string{"log_seconds", "hour", "hour_then", "minute", "five", "quarter", "used", "full", "gone"}

// Bounds of a model's file.
const (
	maxModelBytes = 1 << 20
	maxTrees      = 512
	maxNodes      = 1 << 10 // of one tree
	maxLog        = 2.0     // a model changes a wait by at most e² either way
)

type modelFile struct {
	Format   string     `json:"format"`
	Version  int        `json:"version"`
	Trained  time.Time  `json:"trained_at"`
	Features []string   `json:"features"`
	Low      []float64  `json:"low"`
	High     []float64  `json:"high"`
	Base     float64    `json:"base"`
	Most     float64    `json:"most"`
	Trees    []treeFile `json:"trees"`
}

type treeFile struct {
	Feature []int     `json:"feature"` // -1: a leaf
	Value   []float64 `json:"value"`
	Left    []int     `json:"left"`
	Right   []int     `json:"right"`
}

// ReadModel reads a model's file (docs/eta.md has its form). It refuses a file of more than 1 MiB, unknown members, and trees in which a
// node does not follow its parent.
func ReadModel(r io.Reader) (*Model, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxModelBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxModelBytes {
		return nil, fmt.Errorf("eta: the model has more than %d bytes; train one with fewer trees", maxModelBytes)
	}
	var f modelFile
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("eta: cannot read the model: %w; make one with tools/eta-train", err)
	}
	if d.More() {
		return nil, errors.New("eta: the file has more data after the model; make one with tools/eta-train")
	}
	return f.model()
}

func (f *modelFile) model() (*Model, error) {
	switch {
	case f.Format != "anteroom-eta-model" || f.Version != 1:
		return nil, fmt.Errorf("eta: format %q version %d is not known; use a model of tools/eta-train (anteroom-eta-model version 1)", f.Format, f.Version)
	case f.Trained.Year() < 2000 || f.Trained.Year() > 9999:
		return nil, fmt.Errorf("eta: trained_at %s is not in the years 2000 to 9999", f.Trained.Format(time.RFC3339))
	case !slices.Equal(f.Features, FeatureNames[:]):
		return nil, fmt.Errorf("eta: the model has the features %q, this version has %q; train it again with tools/eta-train", f.Features, FeatureNames)
	case len(f.Low) != features || len(f.High) != features:
		return nil, fmt.Errorf("eta: low and high need a bound for each of the %d features", features)
	case !(math.Abs(f.Base) <= maxLog) || !(f.Most > 0 && f.Most <= maxLog):
		return nil, fmt.Errorf("eta: base %v and most %v have to lie within ±%v", f.Base, f.Most, maxLog)
	case len(f.Trees) > maxTrees:
		return nil, fmt.Errorf("eta: the model has %d trees, at most %d are accepted; train one with fewer trees", len(f.Trees), maxTrees)
	}
	m := &Model{Trained: f.Trained, base: f.Base, most: f.Most, trees: make([][]node, len(f.Trees))}
	for i := range m.low {
		if !(f.Low[i] <= f.High[i]) || math.IsInf(f.Low[i], 0) || math.IsInf(f.High[i], 0) {
			return nil, fmt.Errorf("eta: feature %s: low %v is not below high %v", FeatureNames[i], f.Low[i], f.High[i])
		}
		m.low[i], m.high[i] = f.Low[i], f.High[i]
	}
	for i := range f.Trees {
		tree, err := f.Trees[i].nodes()
		if err != nil {
			return nil, fmt.Errorf("eta: tree %d: %w", i, err)
		}
		m.trees[i] = tree
	}
	return m, nil
}

func (t *treeFile) nodes() ([]node, error) {
	n := len(t.Feature)
	if n == 0 || n > maxNodes || len(t.Value) != n || len(t.Left) != n || len(t.Right) != n {
		return nil, fmt.Errorf("feature, value, left and right need one entry for each of 1 to %d nodes", maxNodes)
	}
	nodes := make([]node, n)
	for i := range nodes {
		feature, value, left, right := t.Feature[i], t.Value[i], t.Left[i], t.Right[i]
		switch {
		case math.IsInf(value, 0) || math.IsNaN(value):
			return nil, fmt.Errorf("node %d: value %v is not finite", i, value)
		case feature < -1 || feature >= features:
			return nil, fmt.Errorf("node %d: there is no feature %d", i, feature)
		case feature == -1:
			if math.Abs(value) > maxLog {
				return nil, fmt.Errorf("node %d: a leaf of %v is more than ±%v", i, value, maxLog)
			}
			left, right = 0, 0
		case left <= i || left >= n || right <= i || right >= n: // so that every walk through the tree ends
			return nil, fmt.Errorf("node %d: its branches %d and %d do not follow it", i, left, right)
		}
		nodes[i] = node{int16(feature), int16(left), int16(right), value}
	}
	return nodes, nil
}

// Predict returns the natural logarithm of the expected wait over Window's estimate.
func (m *Model) Predict(x Example) float64 {
	sum := m.base
	for _, tree := range m.trees {
		i := int16(0)
		for tree[i].feature >= 0 {
			if x[tree[i].feature] <= tree[i].value {
				i = tree[i].left
			} else {
				i = tree[i].right
			}
		}
		sum += tree[i].value
	}
	return min(max(sum, -m.most), m.most)
}
