package store_test

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/anteroom/anteroom/bulk/congestion/congestiontest"
	"github.com/anteroom/anteroom/bulk/store"
)

// longestHold is the longest time for which one refusal holds a group.
const longestHold = time.Minute

// leased returns the job that runs under that lease.
func (m *Model) leased(key string, fence int64) *job {
	if j := m.runs[key]; j != nil && j.fence == fence {
		return j
	}
	return nil
}

func (m *Model) unlease(j *job) {
	delete(m.runs, j.lease)
	delete(j.g.runs, j)
}

// Ack ends runs.
func (m *Model) Ack(_ context.Context, acks []store.Ack) ([]store.AckState, error) {
	states := make([]store.AckState, len(acks))
	for i, a := range acks {
		states[i] = m.ack(a)
	}
	return states, nil
}

func (m *Model) ack(a store.Ack) store.AckState {
	j := m.leased(a.Key, a.Fence)
	if j == nil {
		return store.AckStale
	}
	m.unlease(j)
	m.worked(j, a.Verdict, a.Took)
	switch a.Verdict {
	case store.Done:
		j.tries++
		m.outcome(j, store.Outcome{Status: "succeeded", Result: a.Result})
		return store.AckDone
	case store.Rejected:
		j.tries++
		m.outcome(j, store.Outcome{Status: "failed", Code: a.Code, Error: a.Error, Payload: j.Payload, Type: j.Type, Cost: j.Cost})
		return store.AckFailed
	case store.Buried:
		j.tries++
		m.bury(j, a.Code, a.Error)
		return store.AckDead
	}
	if j.off() {
		m.cancelled(j)
		return store.AckCancelled
	}
	switch a.Verdict {
	case store.Returned:
		m.giveBack(j, m.Now())
		return store.AckReturned
	case store.Throttled, store.Held:
		if !m.refuse(j, a.After, a.Verdict == store.Held && m.S.Gating) {
			return store.AckDead
		}
		return store.AckThrottled
	}
	j.refused = 0 // not this time
	if j.tries++; j.tries > a.Retries {
		m.bury(j, a.Code, a.Error)
		return store.AckDead
	}
	m.wait(j, m.Now()+max(a.After, m.backoff(j.g.t)).Microseconds())
	return store.AckRetry
}

// refuse lets a job wait that may not start now, for after or, where that is 0, the backoff; with hold its group waits too. ok is
// false where it was refused for too long.
func (m *Model) refuse(j *job, after time.Duration, hold bool) (ok bool) {
	g, now := j.g, m.Now()
	if j.refused == 0 {
		j.refused = now
	}
	j.throttles++
	g.Throttles++
	if now-j.refused/1000*1000 > m.S.MaxAge.Microseconds() {
		if j.state == inFlight {
			j.tries++
		}
		m.bury(j, "refused_too_long", "")
		return false
	}
	if after == 0 {
		after = m.backoff(g.t)
	}
	if hold {
		g.gate = max(g.gate, now+min(after, longestHold).Microseconds())
	}
	m.wait(j, now+after.Microseconds())
	return true
}

func byID(a, b *job) int { return cmp.Compare(a.ID, b.ID) }

func bySince(a, b *job) int { return cmp.Or(cmp.Compare(a.since, b.since), byID(a, b)) }

// giveBack puts a job back to the front of its group, to those that were due, or came back, at since.
func (m *Model) giveBack(j *job, since int64) {
	j.returned = j.returned || j.state == inFlight
	j.state, j.scheduled, j.since = pending, false, since
	i, _ := slices.BinarySearchFunc(j.g.front, j, bySince)
	j.g.front = slices.Insert(j.g.front, i, j)
	m.scored(j.g)
}

func (m *Model) bury(j *job, code, text string) {
	m.outcome(j, store.Outcome{Status: "dead", Code: code, Error: text, Payload: j.Payload, Type: j.Type, Cost: j.Cost})
}

func (m *Model) cancelled(j *job) {
	j.tries = 0
	m.outcome(j, store.Outcome{Status: "cancelled"})
}

// outcome ends a job.
func (m *Model) outcome(j *job, o store.Outcome) {
	g, t := j.g, j.g.t
	j.state = ended
	o.ID, o.Attempts, o.At = j.ID, j.tries, at(m.Now())
	g.outcomes = append(g.outcomes, o)
	if g.Counts() && g.drops(o.Status) {
		if j.short = !g.Sealed && !g.Status.Ended(); !j.short {
			g.forget(j)
		}
	}
	*map[string]*int64{"succeeded": &g.Succeeded, "failed": &g.Failed, "dead": &g.Dead, "cancelled": &g.Cancelled}[o.Status]++
	if (o.Status == "failed" || o.Status == "dead") && !m.expired(g) {
		g.stop()
	}
	if t.open--; t.open == 0 { // its figures begin anew
		t.finished, t.throttles, t.backoff = 0, 0, 0
	} else if o.Status != "cancelled" {
		t.finished++
		t.throttles = congestiontest.Mean(t.throttles, t.finished, float64(j.throttles))
	}
	m.scored(g)
	m.settle(g)
}

// stop pauses a group that has failed so often, unless it was resumed beyond that.
func (g *group) stop() {
	if !g.lifted && !g.Paused && g.tooMany() {
		g.Paused, g.Stopped = true, true
	}
}

// tooMany reports whether as many jobs have failed as stop the group.
func (g *group) tooMany() bool {
	failed, of := g.Failed+g.Dead, g.Total
	if !g.Sealed {
		of = max(1000, of)
	}
	return g.StopAt.Count > 0 && failed >= g.StopAt.Count || g.StopAt.Share && float64(failed)*100 >= g.StopAt.Percent*float64(of)
}

// Renew extends leases.
func (m *Model) Renew(_ context.Context, leases []store.Lease) ([]store.LeaseState, error) {
	states := make([]store.LeaseState, len(leases))
	for i, l := range leases {
		if j := m.leased(l.Key, l.Fence); j != nil {
			states[i] = store.LeaseHeld
			if j.off() {
				states[i] = store.LeaseCalled
			}
			j.until = m.Now() + m.S.Lease.Microseconds()
		}
	}
	return states, nil
}
