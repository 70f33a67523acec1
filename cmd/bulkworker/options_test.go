package main

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/config"
)

func load(t *testing.T, environ ...string) *config.Bulk {
	t.Helper()
	cfg, err := config.LoadBulk(config.BulkOptions{Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// The defaults of package store, which a team's Go worker uses, equal those of the configuration.
func TestStoreSettings_DefaultsMatchStore(t *testing.T) {
	want := store.Defaults()
	want.Types = map[string]store.TypeLimit{}
	if got := storeSettings(load(t)); !reflect.DeepEqual(got, want) {
		t.Errorf("\n%+v, want\n%+v", got, want)
	}
	got := storeSettings(load(t, "ANTEROOM_RATE__GLOBAL=0.125", "ANTEROOM_RATE__BURST=1.5", "ANTEROOM_DURABILITY=disk", "ANTEROOM_FAIR_QUEUE__GATING=false"))
	if got.Global != 0.125 || got.Burst != 1.5 || got.WaitLocal != 1 || got.WaitReplicas != 0 || got.Gating {
		t.Errorf("%+v", got)
	}
	got = storeSettings(load(t, "ANTEROOM_DURABILITY=replica", "ANTEROOM_STORE__URL=redis://127.0.0.1:1"))
	if got.WaitLocal != 0 || got.WaitReplicas != 1 {
		t.Errorf("%+v", got)
	}
}

func TestKeepFixed_NamesSettingsThatNeedRestart(t *testing.T) {
	const hook, other = "ANTEROOM_PROCESSORS__WEBHOOK__URL=http://127.0.0.1:1", "ANTEROOM_PROCESSORS__OTHER__KIND=webhook"
	for _, row := range []struct {
		name      string
		old, next []string
		want      []string
	}{
		{"nothing", nil, nil, nil},
		{"what changes at once", []string{hook}, []string{
			"ANTEROOM_PROCESSORS__WEBHOOK__URL=http://127.0.0.1:2", "ANTEROOM_RATE__GLOBAL=5", "ANTEROOM_WORKER__COUNT=5", "ANTEROOM_WORKER__MAX_RETRIES=5",
			"ANTEROOM_CONGESTION__BASE_BACKOFF=2s", "ANTEROOM_CONGESTION__MAX_BACKOFF=3s", "ANTEROOM_PROCESSORS__WEBHOOK__RETRY__MAX=3",
			"ANTEROOM_RETENTION__JOBS=1h", "ANTEROOM_FAIR_QUEUE__POLICY=score", "ANTEROOM_LIMITS__LINE=1KiB", "ANTEROOM_ADMIN__TOKEN=0123456789abcdef",
		}, nil},
		{"what does not", nil, []string{
			"ANTEROOM_LISTEN=127.0.0.1:1", "ANTEROOM_LOG__LEVEL=warn", "ANTEROOM_STORE__PREFIX=x", "ANTEROOM_DURABILITY=disk",
			"ANTEROOM_WORKER__MIN=2", "ANTEROOM_WORKER__MAX=20", "ANTEROOM_WORKER__BATCH=5",
			"ANTEROOM_WORKER__LEASE=5s", "ANTEROOM_WORKER__JOB_TIMEOUT=5s", "ANTEROOM_WORKER__SHUTDOWN_GRACE=5s", "ANTEROOM_LIMITS__RESULT=1KiB",
		}, []string{"listen", "log", "store", "durability", "worker.min", "worker.max", "worker.batch",
			"worker.lease", "worker.job_timeout", "worker.shutdown_grace", "limits.result"}},
		{"no more workers", nil, []string{"ANTEROOM_WORKER__COUNT=0"}, []string{"worker.count"}},
		{"workers where there were none", []string{"ANTEROOM_WORKER__COUNT=0"}, nil, []string{"worker.count"}},
		{"a processor that is new", nil, []string{hook}, []string{"processors.webhook"}},
		{"one that is gone", []string{hook}, nil, []string{"processors.webhook"}},
		{"one of another kind", []string{other, "ANTEROOM_PROCESSORS__OTHER__URL=http://127.0.0.1:1"},
			[]string{"ANTEROOM_PROCESSORS__OTHER__KIND=email", "ANTEROOM_PROCESSORS__OTHER__SMTP=smtp://127.0.0.1", "ANTEROOM_PROCESSORS__OTHER__FROM=a@b.example"}, []string{"processors.other"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			old, next := load(t, row.old...), load(t, row.next...)
			if got := keepFixed(old, next); !slices.Equal(got, row.want) {
				t.Errorf("%q", got)
			}
			// What was put back does not differ a second time, and the types that run are those that ran.
			if got := keepFixed(old, next); len(got) > 0 || !slices.Equal(old.Active(), next.Active()) {
				t.Errorf("again: %q; %q", got, next.Active())
			}
		})
	}
}

// gate is a handler whose jobs wait, and that counts its Closes.
type gate struct {
	name   string
	open   chan struct{}
	inside chan struct{}
	closed atomic.Int64
}

func newGate(name string) *gate {
	return &gate{name: name, open: make(chan struct{}), inside: make(chan struct{})}
}

func (g *gate) Handle(context.Context, *bulk.Job) ([]byte, error) {
	g.inside <- struct{}{}
	<-g.open
	if g.closed.Load() > 0 {
		return nil, errors.New("closed under a running job")
	}
	return []byte(g.name), nil
}

func (g *gate) Close() error {
	g.closed.Add(1)
	return nil
}

func TestProcessor_IsReplacedWhileJobsRun(t *testing.T) {
	old, next := newGate("old"), newGate("new")
	p := &processor{}
	p.replace(old)
	results := make(chan string)
	run := func() {
		result, err := p.Handle(t.Context(), &bulk.Job{})
		if err != nil {
			t.Error(err)
		}
		results <- string(result)
	}
	go run()
	<-old.inside
	p.replace(next)
	go run()
	<-next.inside
	if old.closed.Load() != 0 {
		t.Error("closed while it has a job")
	}
	close(old.open)
	if got := <-results; got != "old" {
		t.Error(got)
	}
	close(next.open)
	if got := <-results; got != "new" {
		t.Error(got)
	}
	p.replace(nil)
	if old.closed.Load() != 1 || next.closed.Load() != 1 {
		t.Errorf("closed %d and %d times", old.closed.Load(), next.closed.Load())
	}
}

func TestCheckConfig_ReportsAllProblems(t *testing.T) {
	err := errors.Join(errors.New("processors.a.url: empty; give one"), errors.Join(errors.New(`callbacks.allow[0] "x y": no host`)))
	var lines []string
	for _, p := range asProblems(err) {
		lines = append(lines, p.Path+" | "+p.Message)
	}
	if got := strings.Join(lines, "\n"); got != "processors.a.url | empty; give one\ncallbacks.allow[0] | \"x y\": no host" {
		t.Error(got)
	}
	if asProblems(nil) != nil {
		t.Error("a problem out of nothing")
	}
}
