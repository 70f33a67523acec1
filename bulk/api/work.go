package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/remote"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// Work leases jobs to workers and records their verdicts; *remote.Broker implements it.
type Work interface {
	Lease(ctx context.Context, r remote.Request, send func(jobs []remote.Job) error) error
	End(ctx context.Context, verdicts []remote.Verdict, check bool) ([]store.AckState, error)
	Extend(ctx context.Context, held []remote.Handle, check bool) ([]store.LeaseState, error)
	LeaseFor() time.Duration
}

var _ Work = (*remote.Broker)(nil)

// WorkerToken admits workers that pull jobs, and only to /v1/work.
type WorkerToken struct {
	Name  string   // for the log
	Types []string // of jobs that its holders may lease; empty: all
	Token string
}

type workRoutes struct{ *Server }

const (
	maxWorkBody = 2 << 20
	maxWait     = 60 // seconds
	maxTypes    = 100
	maxLost     = 8

	ruleWait   = "a number of seconds from 0 to 60 with at most three decimal places"
	ruleWorker = "1 to 64 of A-Z a-z 0-9 . _ : -"
)

// workScope refuses a token of a worker outside of /v1/work, and one of a tenant within it.
func workScope(path string, who identity) error {
	within := strings.HasPrefix(path, workPath)
	switch {
	case within && !who.admin && !who.worker:
		return ophttp.NewProblem(http.StatusForbidden, "wrong_scope", "workers lease the jobs of all tenants, and the token %q is for %s only: use a token of worker_tokens, or the operators' token (admin.token)",
			who.name, strings.Join(who.tenants, ", "))
	case !within && who.worker:
		return ophttp.NewProblem(http.StatusForbidden, "wrong_scope", "the token %q is for workers (worker_tokens) and admits to %s only: use a token of api_tokens, or the operators' token (admin.token)", who.name, workPath)
	}
	return nil
}

const workPath = "/v1/work/"

// limited reports whether the token is for some types only.
func (i identity) limited() bool { return !i.admin && len(i.types) > 0 }

// forTypes refuses a worker's token that is not for one of the types.
func (i identity) forTypes(types ...string) error {
	for _, t := range types {
		if i.limited() && !slices.Contains(i.types, t) {
			return ophttp.NewProblem(http.StatusForbidden, "wrong_scope", "the token %q is for jobs of the types %s, not %q: add the type to worker_tokens, or use another token",
				i.name, strings.Join(i.types, ", "), ophttp.Shorten(t))
		}
	}
	return nil
}

// readWork sets to from the body of a request of a worker. release frees the memory that it counts.
func readWork[T any](s *Server, r *http.Request, who identity, fields []field[T], to *T) (release func(), err error) {
	if err := ophttp.CheckContentType(r, true, ophttp.JSONTypes...); err != nil {
		return nil, err
	}
	if err := noQuery(r); err != nil {
		return nil, err
	}
	size := r.ContentLength
	if size < 0 || size > maxWorkBody {
		size = maxWorkBody
	}
	release = func() { s.calls.free(who, size) }
	if !s.calls.take(who, size) {
		p := ophttp.NewProblem(http.StatusServiceUnavailable, "busy", "too many requests with large bodies are in progress: send the request again")
		p.RetryAfter = time.Second
		return nil, p
	}
	body, err := ophttp.ReadObjectOf(r, maxWorkBody, false)
	if err == nil {
		err = invalid(decode(fields, body, to))
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// list is a list in a body, with the faults of its elements.
type list[T any] struct {
	items  []T
	faults []ophttp.Fault
}

// listField returns the field of a list of 1 to store.MaxPull elements. each reads one, whose faults begin with path.
func listField[T any](name string, each func(to *T, path string, raw []byte) []ophttp.Fault) []field[list[T]] {
	return []field[list[T]]{{name, "a list of 1 to " + strconv.Itoa(store.MaxPull), func(l *list[T], raw []byte) string {
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return "is not a list"
		}
		if len(items) == 0 || len(items) > store.MaxPull {
			return fmt.Sprintf("has %d elements", len(items))
		}
		l.items = make([]T, len(items))
		for i, item := range items {
			l.faults = append(l.faults, each(&l.items[i], name+"["+strconv.Itoa(i)+"]", item)...)
			if len(l.faults) >= maxFaults {
				break
			}
		}
		return ""
	}, false}}
}

// readList reads a body that has a list.
func readList[T any](s *Server, r *http.Request, who identity, fields []field[list[T]]) (items []T, release func(), err error) {
	var l list[T]
	release, err = readWork(s, r, who, fields, &l)
	if err != nil {
		return nil, nil, err
	}
	if l.items == nil {
		l.faults = append(l.faults, ophttp.Fault{Path: fields[0].name, Problem: "is missing", Allowed: fields[0].allowed})
	}
	if len(l.faults) > 0 {
		release()
		return nil, nil, ophttp.Invalid(l.faults...)
	}
	return l.items, release, nil
}

var leaseFields = []field[remote.Request]{
	{"worker", ruleWorker, func(q *remote.Request, raw []byte) string { return setWord(&q.Worker, raw, 64, ":") }, false},
	{"types", "1 to 100 types; a type has " + ruleType, func(q *remote.Request, raw []byte) string {
		return setNames(&q.Types, raw, maxTypes, maxType, alsoInType)
	}, false},
	{"max", "a whole number from 0 to " + strconv.Itoa(store.MaxPull), func(q *remote.Request, raw []byte) string {
		return setWhole(&q.Max, raw, 0, store.MaxPull)
	}, false},
	{"wait", ruleWait, func(q *remote.Request, raw []byte) string { return setSeconds(&q.Wait, raw, maxWait) }, false},
	{"request", ruleWord, func(q *remote.Request, raw []byte) string { return setWord(&q.ID, raw, 64, "") }, false},
	{"lost", "1 to 8 ids of requests; an id has " + ruleWord, func(q *remote.Request, raw []byte) string {
		return setNames(&q.Lost, raw, maxLost, 64, "")
	}, false},
}

// lease leases jobs to a worker. It waits for jobs if there are none.
func (s workRoutes) lease(w http.ResponseWriter, r *http.Request, who identity) error {
	q := remote.Request{Max: 1, Stop: s.closing}
	release, err := readWork(s.Server, r, who, leaseFields, &q)
	if err != nil {
		return err
	}
	release() // the body is small, and the wait is long
	var faults []ophttp.Fault
	if len(q.Types) == 0 {
		faults = append(faults, ophttp.Fault{Path: "types", Problem: "is missing", Allowed: "1 to 100 types that the worker runs"})
	}
	if q.Worker == "" && (q.ID != "" || len(q.Lost) > 0) {
		faults = append(faults, ophttp.Fault{Path: "worker", Problem: "is missing; request and lost are those of a worker", Allowed: ruleWorker})
	}
	if len(faults) > 0 {
		return ophttp.Invalid(faults...)
	}
	if err := who.forTypes(q.Types...); err != nil {
		return err
	}
	if who.worker {
		q.Holder = who.name
	}
	if q.Host = r.RemoteAddr; q.Host != "" {
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			q.Host = host
		}
	}
	q.Worker = cmp.Or(q.Worker, "http:"+q.Host)
	err = s.o.Work.Lease(r.Context(), q, func(jobs []remote.Job) error { return s.sendJobs(w, jobs) })
	if errors.Is(err, errSent) {
		return nil
	}
	return busyWork(err)
}

// busyWork returns the problem of a request for jobs that is refused.
func busyWork(err error) error {
	switch {
	case errors.Is(err, remote.ErrBusy):
		p := ophttp.NewProblem(http.StatusServiceUnavailable, "too_many_waiting", "there is no job now, and as many requests wait for one as this process allows: ask again later, or ask another process")
		p.RetryAfter = 5 * time.Second
		return p
	case errors.Is(err, remote.ErrStopping):
		p := ophttp.NewProblem(http.StatusServiceUnavailable, "stopping", "this process is stopping and leases no more jobs: ask another process, or this one when it is back")
		p.RetryAfter = time.Second
		return p
	}
	return err
}

// errSent reports that the response could not be sent, so that there is nobody to send a problem to.
var errSent = errors.New("the worker has disconnected")

// sendJobs sends leased jobs, those of a group together, and reports whether the connection took the response.
func (s workRoutes) sendJobs(w http.ResponseWriter, jobs []remote.Job) error {
	slices.SortStableFunc(jobs, func(a, b remote.Job) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Type, b.Type))
	})
	v := bulktype.Leased[timestamp]{Jobs: make([]bulktype.LeasedJob[timestamp], len(jobs)), LeaseSeconds: tidy(s.o.Work.LeaseFor().Seconds())}
	for i := range jobs {
		j := &jobs[i]
		parent, state := s.o.Tracer.Lease(&j.Leased)
		v.Jobs[i] = bulktype.LeasedJob[timestamp]{Lease: j.Handle.String(), ID: j.ID, Group: j.Group, Tenant: j.Tenant, Type: j.Type, Attempt: j.Attempt,
			Fence: j.Fence, Cost: j.Cost, IdempotencyKey: j.IdempotencyKey(), LeaseUntil: at(j.Until), TraceParent: parent, TraceState: state, Payload: j.Payload}
	}
	body := append(ophttp.Marshal(v), '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(body)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errSent, err)
	}
	return nil
}
