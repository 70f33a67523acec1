package store_test

import (
	"time"

	"github.com/anteroom/anteroom/admission/admissiontest"
	"github.com/anteroom/anteroom/bulk/store"
)

// typeLimit limits the jobs of one type.
type typeLimit struct {
	store.TypeLimit
	meter admissiontest.Meter // nil: no rate
}

// SetType changes the limits of a type.
func (m *Model) SetType(kind string, limit store.TypeLimit) {
	l := m.types[kind]
	if l == nil {
		l = &typeLimit{}
		m.types[kind] = l
	}
	l.TypeLimit = limit
	switch {
	case limit.Rate == 0:
		l.meter = nil
	case l.meter == nil:
		l.meter = m.meter(limit.Rate, 0)
	default:
		l.meter.Rerate(milli(limit.Rate), tolerance(limit.Rate, 0))
	}
}

// full reports whether the concurrency of the type is used up.
func (m *Model) full(kind string) bool {
	l := m.types[kind]
	if l == nil || l.Concurrency == 0 {
		return false
	}
	n := int64(0)
	for _, j := range m.runs {
		if j.marked && j.kind() == kind {
			n++
		}
	}
	return n >= l.Concurrency
}

// typeWaits returns how long the rate of a job's type holds it back.
func (m *Model) typeWaits(j *job) time.Duration {
	l := m.types[j.kind()]
	if l == nil || l.meter == nil {
		return 0
	}
	l.meter.Refill(m.Now())
	return positive(l.meter.Wait(j.Cost))
}

func (m *Model) takeType(j *job) {
	l := m.types[j.kind()]
	if l == nil {
		return
	}
	j.marked = l.Concurrency > 0
	if l.meter != nil {
		l.meter.Take(j.Cost)
	}
}
