package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/handler/email"
	"github.com/anteroom/anteroom/bulk/handler/push"
	"github.com/anteroom/anteroom/bulk/handler/webhook"
	"github.com/anteroom/anteroom/bulk/outbound"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/config"
)

// handler is a bulk.Handler that can be closed.
type handler interface {
	bulk.Handler
	Close() error
}

// newHandler returns the handler of a job type; guard checks where push subscriptions lead.
func newHandler(cfg *config.Bulk, jobType string, guard *outbound.Guard) (handler, error) {
	p := cfg.Processors[jobType]
	switch p.Kind {
	case config.KindWebhook:
		secret, err := p.Secret()
		if err != nil {
			return nil, errors.New("processors." + jobType + "." + err.Error())
		}
		return webhook.New(webhook.Options{
			Name: jobType, URL: p.URL, Secret: secret, Timeout: p.Timeout, Headers: p.Headers, MaxResult: int(cfg.Limits.Result), MaxPerHost: mostWorkers(cfg),
		})
	case config.KindEmail:
		return email.New(email.Options{
			Name: jobType, SMTP: p.SMTP, From: p.From, Timeout: p.Timeout, MaxResult: int(cfg.Limits.Result), MaxConns: mostWorkers(cfg),
		})
	}
	return push.New(push.Options{
		Name: jobType, CredentialsFile: p.FCM.CredentialsFile, Endpoint: p.FCM.Endpoint, VAPIDKeyFile: p.WebPush.VAPIDKeyFile,
		APNs:  push.APNs(p.APNs),
		Guard: guard, Timeout: p.Timeout, MaxResult: int(cfg.Limits.Result), MaxPerHost: mostWorkers(cfg),
	})
}

// policy returns the policy of a processor's jobs.
func policy(cfg *config.Bulk, jobType string) bulk.Policy {
	r := cfg.Processors[jobType].Retry
	if r.Max < 0 {
		r.Max = cfg.Worker.MaxRetries
	}
	if r.Max == 0 {
		r.Max = bulk.NoRetries
	}
	timeout := min(cfg.Processors[jobType].Timeout, cfg.Worker.JobTimeout)
	return bulk.Policy{Timeout: timeout, Retry: bulk.Retry{Max: r.Max, Base: r.Base, Most: r.Most}, Breaker: store.Breaker(cfg.Processors[jobType].Breaker)}
}

// batching returns the bounds of batches.
func batching(b config.Batching) bulk.Batching {
	return bulk.Batching{Most: b.Max, Wait: cmp.Or(b.Wait, 50*time.Millisecond)}
}

// typeLimits returns the limits of all active processors, and of those whose jobs are pulled.
func typeLimits(cfg *config.Bulk) map[string]store.TypeLimit {
	limits := make(map[string]store.TypeLimit)
	for _, jobType := range slices.Concat(cfg.Active(), cfg.Pulled()) {
		p := cfg.Processors[jobType]
		if l := (store.TypeLimit{Rate: p.Rate.PerSecond(), Concurrency: p.Concurrency, Batch: p.Batch}); l != (store.TypeLimit{}) {
			limits[jobType] = l
		}
	}
	return limits
}

// mostWorkers returns how many jobs may run at once: no worker waits for a connection.
func mostWorkers(cfg *config.Bulk) int { return max(cfg.Worker.Count, cfg.Worker.Max) }

// newHandlers returns the handlers of all active types.
func newHandlers(cfg *config.Bulk) (map[string]handler, error) {
	guard, err := outbound.NewGuard(cfg.Callbacks.Allow)
	if err != nil {
		return nil, err
	}
	handlers := make(map[string]handler)
	for _, jobType := range cfg.Active() {
		h, err := newHandler(cfg, jobType, guard)
		if err != nil {
			closeAll(handlers)
			return nil, err
		}
		handlers[jobType] = h
	}
	return handlers, nil
}

func closeAll(handlers map[string]handler) {
	for _, h := range handlers {
		_ = h.Close() // only closes idle connections
	}
}

// checkParts returns the problems that other packages find in the configuration, so that check-config and the start report all
// of them at once.
func checkParts(cfg *config.Bulk) []config.Problem {
	var problems []config.Problem
	guard, err := outbound.NewGuard(cfg.Callbacks.Allow)
	if err != nil {
		problems = asProblems(err)
		guard = &outbound.Guard{}
	}
	for _, jobType := range cfg.Active() {
		h, err := newHandler(cfg, jobType, guard)
		if err == nil {
			err = h.Close()
		}
		problems = append(problems, asProblems(err)...)
	}
	return problems
}

// asProblems splits an error of several lines, each of which begins with the path of a setting.
func asProblems(err error) []config.Problem {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var problems []config.Problem
		for _, part := range joined.Unwrap() {
			problems = append(problems, asProblems(part)...)
		}
		return problems
	}
	path, message, _ := strings.Cut(err.Error(), " ")
	return []config.Problem{{Path: strings.TrimSuffix(path, ":"), Message: message}}
}

// processor is a handler that can be replaced while jobs run; the old one is closed after its last job.
type processor struct {
	mu      sync.Mutex
	current *inUse
}

type inUse struct {
	handler
	jobs     int // calls in progress
	replaced bool
}

var (
	_ bulk.Handler      = (*processor)(nil)
	_ bulk.BatchHandler = (*processor)(nil)
)

func (p *processor) Handle(ctx context.Context, job *bulk.Job) ([]byte, error) {
	h := p.begin()
	defer p.done(h)
	return h.Handle(ctx, job)
}

// HandleBatch passes a batch to the handler, which is a webhook's.
func (p *processor) HandleBatch(ctx context.Context, jobs []*bulk.Job) []bulk.BatchResult {
	h := p.begin()
	defer p.done(h)
	return h.handler.(bulk.BatchHandler).HandleBatch(ctx, jobs)
}

func (p *processor) begin() *inUse {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current.jobs++
	return p.current
}

func (p *processor) done(h *inUse) {
	p.mu.Lock()
	h.jobs--
	last := h.replaced && h.jobs == 0
	p.mu.Unlock()
	if last {
		_ = h.Close() // only closes idle connections
	}
}

// replace sets the next handler; nil closes the processor, after its last job.
func (p *processor) replace(next handler) {
	p.mu.Lock()
	old := p.current
	p.current = &inUse{handler: next}
	var idle bool
	if old != nil {
		old.replaced = true
		idle = old.jobs == 0
	}
	p.mu.Unlock()
	if idle {
		_ = old.Close() // as above
	}
}
