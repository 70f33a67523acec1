package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

type runningFilter struct {
	tenant, group, kind, process string
	limit                        int64
}

var runningFields = []field[runningFilter]{
	{"tenant", ruleWord, func(f *runningFilter, raw []byte) string { return setWord(&f.tenant, raw, maxTenant, "") }, true},
	{"group", ruleGroup, func(f *runningFilter, raw []byte) string { return setWord(&f.group, raw, maxGroupID, ":") }, true},
	{"type", ruleType, func(f *runningFilter, raw []byte) string { return setWord(&f.kind, raw, maxType, alsoInType) }, true},
	{"process", "an id of processes", func(f *runningFilter, raw []byte) string { return setWord(&f.process, raw, maxGroupID, ":") }, true},
	{"limit", "a whole number from 1 to 1000", func(f *runningFilter, raw []byte) string { return setWhole(&f.limit, raw, 1, 1000) }, false},
}

// showWorkers responds with the processes, the workers that pull, and the running jobs, longest running first. A tenant's token sees its
// tenants' jobs and no processes.
func (s tenantRoutes) showWorkers(w http.ResponseWriter, r *http.Request, who identity) error {
	f := runningFilter{limit: 100}
	if err := readQuery(r, runningFields, &f); err != nil {
		return err
	}
	if f.tenant != "" {
		if err := who.forTenant(f.tenant); err != nil {
			return err
		}
	}
	now, err := s.running.read(r.Context(), s.store)
	if err != nil {
		return err
	}
	view := bulktype.Workers[timestamp]{Processes: []bulktype.Process[timestamp]{}, Jobs: []bulktype.RunningJob[timestamp]{}, Away: bulktype.Away{Shards: now.away}}
	for _, p := range now.processes {
		if !who.admin {
			break
		}
		v := bulktype.Process[timestamp]{ID: p.ID, Host: p.Host, Keeper: p.Keeper, State: "running", Workers: p.Workers, Busy: p.Busy, Types: p.Types,
			StartedAt: at(p.StartedAt), SeenAt: at(p.SeenAt)}
		if p.Draining {
			v.State = "draining"
		}
		if v.Types == nil {
			v.Types = []string{}
		}
		view.Processes = append(view.Processes, v)
	}
	for _, p := range now.pullers {
		if !who.admin {
			break
		}
		view.Processes = append(view.Processes, bulktype.Process[timestamp]{ID: p.ID, Host: p.Host, Pulls: true, State: "running", Busy: now.busy[p.ID], Types: p.Types,
			StartedAt: at(p.StartedAt), SeenAt: at(p.SeenAt)})
	}
	for _, j := range now.jobs {
		if !who.sees(j.Tenant) || f.tenant != "" && j.Tenant != f.tenant || f.group != "" && j.Group != f.group ||
			f.kind != "" && j.Type != f.kind || f.process != "" && j.Process != f.process {
			continue
		}
		view.Running++
		if len(view.Jobs) < int(f.limit) {
			view.Jobs = append(view.Jobs, bulktype.RunningJob[timestamp]{Group: j.Group, Tenant: j.Tenant, ID: j.ID, Type: j.Type, Status: "running",
				Process: j.Process, Attempts: j.Attempts, StartedAt: at(j.StartedAt)})
		}
	}
	if who.admin && f.tenant+f.group+f.kind+f.process == "" {
		view.Running = now.all
	}
	return ophttp.OK(w, view)
}

// runningFor is how long a reading of the running jobs is reused: it costs the store more than any other page.
const runningFor = time.Second

// running is a reading of the processes and running jobs.
type running struct {
	processes []store.Process
	pullers   []store.Puller
	jobs      []store.RunningJob
	all       int64
	away      store.Away
	busy      map[string]int // running jobs by process or puller
}

// lastRunning shares the last reading, or its error, among requests.
type lastRunning struct {
	mu sync.Mutex
	at time.Time
	running
	err error
}

func (l *lastRunning) read(ctx context.Context, from *store.Fleet) (running, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) >= runningFor {
		// The reading is for all waiting requests, so it goes on when the first one is cancelled.
		l.running, l.err = readRunning(context.WithoutCancel(ctx), from)
		l.at = time.Now()
	}
	return l.running, l.err
}

func readRunning(ctx context.Context, from *store.Fleet) (r running, err error) {
	if r.processes, r.away, err = from.Processes(ctx); err != nil {
		return running{}, err
	}
	if r.pullers, err = from.Pullers(ctx); err != nil {
		return running{}, err
	}
	away := store.Away(nil)
	if r.jobs, r.all, away, err = from.Running(ctx); err != nil {
		return running{}, err
	}
	if len(away) > 0 {
		r.away = away
	}
	r.busy = map[string]int{}
	for i := range r.jobs {
		r.busy[r.jobs[i].Process]++
	}
	return r, nil
}
