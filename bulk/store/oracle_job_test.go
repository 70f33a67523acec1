package store_test

import (
	"context"
	"slices"

	"github.com/anteroom/anteroom/bulk/store"
)

// off reports whether a job that runs is to be cancelled.
func (j *job) off() bool { return j.calledOff || j.g.Status == store.Cancelled }

// CancelJob cancels one job, or marks a running one to be cancelled.
func (m *Model) CancelJob(_ context.Context, id, name string) (running bool, err error) {
	j, err := m.job(id, name)
	if err != nil {
		return false, err
	}
	g := j.g
	switch {
	case j.state == inFlight:
		j.calledOff = true
		return true, nil
	case g.Status == store.Cancelled && j.state != ended, j.state == ended && g.status(j) == "cancelled":
		return false, nil
	case j.state == ended:
		return false, refuse(store.CodeState, "job %q of group %q has ended", name, id)
	case j.state == nonReady:
		m.unwait(j)
	}
	is := func(other *job) bool { return other == j }
	g.order, g.front = slices.DeleteFunc(g.order, is), slices.DeleteFunc(g.front, is)
	m.ready = slices.DeleteFunc(m.ready, is)
	m.cancelled(j)
	m.settle(g)
	return false, nil
}

// RetryJob starts a waiting job, or redrives one that has failed or died.
func (m *Model) RetryJob(ctx context.Context, id, name string, maxGroups int64) (*store.Group, error) {
	j, err := m.job(id, name)
	if err != nil {
		return nil, err
	}
	switch what := j.g.status(j); {
	case j.state == ended && (what == "failed" || what == "dead") && !j.g.redriven[name]:
		g, err := m.RedriveJobs(ctx, id, store.RedriveOptions{Job: name, MaxGroups: maxGroups})
		return &g, err
	case j.state == nonReady && j.g.Status != store.Cancelled:
		m.unwait(j)
		m.giveBack(j, m.Now())
		return nil, nil
	}
	return nil, refuse(store.CodeState, "job %q of group %q waits for nothing", name, id)
}

func (m *Model) job(id, name string) (*job, error) {
	g, err := m.find(id)
	if err != nil {
		return nil, err
	}
	if j := g.jobs[name]; j != nil {
		return j, nil
	}
	return nil, refuse(store.CodeNotFound, "group %q has no job %q", id, name)
}
