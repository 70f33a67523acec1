package remote

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
)

const (
	// forgetAfter is how long a worker is remembered after its last request.
	forgetAfter = time.Minute
	// mostPullers bounds the workers that a process lists. Others are served without being listed.
	mostPullers = 10_000
)

// presence tracks the workers that ask this process for jobs.
type presence struct {
	registries []registry // of all shards
	mu         sync.Mutex
	workers    map[string]*puller
}

type puller struct {
	store.Puller
	seen     time.Time // end or begin of its last request
	reported time.Time // when report last listed it
	requests int       // in progress
}

// enter notes a request and returns a function that notes its end.
func (p *presence) enter(r *Request, now time.Time) (leave func()) {
	p.serve(r.Types)
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.workers[r.Worker]
	if w == nil {
		if len(p.workers) >= mostPullers {
			return func() {}
		}
		w = &puller{Puller: store.Puller{ID: r.Worker, StartedAt: now}}
		p.workers[r.Worker] = w
	}
	w.Host, w.Types, w.seen = r.Host, r.Types, now
	w.requests++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		w.requests--
		w.seen = time.Now()
	}
}

// report lists the workers that had a request since the last report, and forgets those without one for forgetAfter.
func (p *presence) report(ctx context.Context, now time.Time) error {
	list := p.present(now)
	for i := range list {
		p.serve(list[i].Types)
	}
	errs := make([]error, len(p.registries))
	var all sync.WaitGroup
	for n, r := range p.registries {
		all.Go(func() { errs[n] = r.NotePullers(ctx, list) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (p *presence) serve(types []string) {
	for _, r := range p.registries {
		r.Serve(types)
	}
}

// present returns the workers that report lists.
func (p *presence) present(now time.Time) (list []store.Puller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, w := range p.workers {
		switch {
		case w.requests > 0 || w.seen.After(w.reported):
			w.reported = now
			list = append(list, w.Puller)
		case now.Sub(w.seen) > forgetAfter:
			delete(p.workers, id)
		}
	}
	return list
}
