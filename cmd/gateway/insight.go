package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway"
	"github.com/anteroom/anteroom/gateway/console"
	"github.com/anteroom/anteroom/gateway/explain"
	"github.com/anteroom/anteroom/gateway/metrics"
	"github.com/anteroom/anteroom/internal/config"
	"github.com/anteroom/anteroom/internal/lifecycle"
	"github.com/anteroom/anteroom/token"
)

// insight reports this gateway to the others, and records the figures of the rooms.
type insight struct {
	fleet    *admission.Fleet
	recorder *admission.Recorder

	mu     sync.Mutex
	report admission.Gateway
}

// newInsight returns the insight of a gateway. failures has its last error.
func newInsight(cfg *config.Config, g *gateway.Gateway, core *admission.Core, ring *token.Ring, version string, failures *lastError, registry prometheus.Registerer) (*insight, error) {
	host, _ := os.Hostname() // a name for people only
	i := &insight{report: admission.Gateway{Host: host, Version: version, Started: time.Now().UnixMicro()}}
	i.loaded(cfg, ring)
	i.fleet = admission.NewFleet(core, func() admission.Gateway {
		i.mu.Lock()
		defer i.mu.Unlock()
		r := i.report
		r.LastError, r.InFlight = failures.Last(), gateway.InFlight(g)
		return r
	})
	i.recorder = admission.NewRecorder(core, i.fleet, func(room string, m *admission.Measures) { gateway.Measure(g, room, m) })
	return i, registry.Register(metrics.NewReasons(func(each func(*admission.Room)) { gateway.EachQueue(g, each) }, i.recorder.Reason))
}

// loaded notes a configuration that is now in use.
func (i *insight) loaded(cfg *config.Config, ring *token.Ring) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.report.Configuration = admission.Configuration{Generation: i.report.Configuration.Generation + 1, Hash: hashOf(cfg), Loaded: time.Now().UnixMicro()}
	i.report.Keys = ring.Fingerprint()
}

// insight returns what the console shows.
func (i *insight) insight(g *gateway.Gateway) console.Insight {
	return console.Insight{Recorder: i.recorder, Fleet: i.fleet, Explain: func(ctx context.Context, q *explain.Request) (*explain.Explanation, error) {
		return gateway.Explain(ctx, g, q)
	}}
}

// hashOf returns a hash of the effective configuration without its secrets and without what is of one machine. The admin tokens are not
// in it.
func hashOf(cfg *config.Config) string {
	shared := *cfg
	shared.Listen, shared.Admin, shared.Check.Listen, shared.Check.GRPC, shared.Log, shared.Tokens.Keys = "", config.Admin{}, "", "", config.Log{}, nil
	shared.Store.URL = ""
	text, err := json.Marshal(shared)
	if err != nil {
		text = fmt.Append(nil, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// addInsight runs the reports and the recording.
func addInsight(parts *lifecycle.Group, i *insight) {
	for _, run := range []func(context.Context) error{i.fleet.Run, i.recorder.Run} {
		ctx, cancel := context.WithCancel(context.Background())
		parts.Add(func() error { return run(ctx) }, cancel)
	}
}

// lastError is a log handler that keeps the last record at the level error.
type lastError struct {
	next slog.Handler
	last *atomic.Pointer[admission.LastError]
}

func newLastError(next slog.Handler) *lastError {
	return &lastError{next, &atomic.Pointer[admission.LastError]{}}
}

// errorText bounds the text of the last error.
const errorText = 300

// Last returns the last error; nil: none.
func (h *lastError) Last() *admission.LastError { return h.last.Load() }

func (h *lastError) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError || h.next.Enabled(ctx, level)
}

// Handle keeps an error and passes each record on.
func (h *lastError) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool {
			text += " " + a.Key + "=" + a.Value.String()
			return len(text) < errorText
		})
		h.last.Store(&admission.LastError{At: r.Time.UnixMicro(), Text: text[:min(len(text), errorText)]})
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

func (h *lastError) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &lastError{h.next.WithAttrs(attrs), h.last}
}

func (h *lastError) WithGroup(name string) slog.Handler {
	return &lastError{h.next.WithGroup(name), h.last}
}
