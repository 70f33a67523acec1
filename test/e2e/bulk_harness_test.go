package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// bulkLong runs these tests at full size instead of the size for every change.
var bulkLong = os.Getenv("BULK_LONG") != ""

// sized returns n, or long if BULK_LONG is set.
func sized(n, long int) int {
	if bulkLong {
		return long
	}
	return n
}

// bulkPatience bounds how long a group may take.
func bulkPatience() time.Duration { return time.Duration(sized(120, 1800)) * time.Second }

// farm is a store, a receiver of jobs, and the bulk workers between them. It ends with an audit of the store.
type farm struct {
	t          *testing.T
	to         *jobReceiver
	store      string // flow mapping of the configuration
	processors string // further ones, of every worker that is started from now on: ", name: {…}"
	settings   string // further lines of every worker's configuration
	redis      *redistest.PrivateServer
	made       int
}

// newFarm starts a Redis whose data survives a kill: with everysec it keeps what it has acknowledged in its own memory while the disk is busy.
func newFarm(t *testing.T, settings string) *farm {
	t.Helper()
	redis := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	return newFarmOn(t, redis, fmt.Sprintf("{url: %q, timeout: %s}", redis.URL(), slowStore), settings)
}

func newFarmOn(t *testing.T, redis *redistest.PrivateServer, store, settings string) *farm {
	t.Helper()
	f := &farm{t: t, to: newJobReceiver(t), store: store, settings: settings, redis: redis}
	last := f.config("audit", store)
	// Registered before any worker, so that the audit runs after all workers have ended.
	t.Cleanup(func() { auditBulk(t, last) })
	return f
}

// config writes the configuration of a worker whose jobs carry its name.
func (f *farm) config(name, store string) string {
	f.t.Helper()
	file := filepath.Join(tempDir(f.t), "bulkworker.yaml")
	write(f.t, file, fmt.Sprintf(`
listen: "127.0.0.1:0"
store: %s
processors: {webhook: {kind: webhook, url: %q, timeout: 60s, headers: {X-Worker: %q}}%s}
%s
`, store, f.to.URL, name, f.processors, f.settings))
	return file
}

// bulkWorker is one run of the program.
type bulkWorker struct {
	t    *testing.T
	name string
	file string // the configuration
	url  string
	*process
}

// worker starts one more bulk worker, ready to serve. It ends with the test, which fails if it does not end well.
func (f *farm) worker() *bulkWorker {
	f.t.Helper()
	return f.workerOn(f.store)
}

func (f *farm) workerOn(store string) *bulkWorker {
	f.t.Helper()
	f.made++
	name := "w" + itoa(f.made)
	return startWorker(f.t, name, f.config(name, store))
}

func startWorker(t *testing.T, name, file string, env ...string) *bulkWorker {
	t.Helper()
	w := &bulkWorker{t: t, name: name, file: file}
	args := []string{"--listen", "127.0.0.1:0"}
	if file != "" {
		args = append(args, "--config", file)
	}
	cmd := exec.Command(bulkworkerBinary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = tempDir(t)
	w.process = &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = logOf{w.process}, logOf{w.process}
	cmd.WaitDelay = 2 * time.Second // a store of its own may hold the pipe open for a while longer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		w.err = cmd.Wait()
		close(w.ended)
	}()
	t.Cleanup(func() {
		w.stop()
		if fault := ours.FindString(w.text()); fault != "" {
			t.Errorf("%q is in the log of %s:\n%s", fault, name, w.text())
		}
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, tail(w.text()))
		}
	})
	until(t, "the bulk worker is ready", func() bool {
		select {
		case <-w.ended:
			t.Fatalf("the bulk worker ended: %v\n%s", w.err, w.text())
		default:
		}
		if addr, ok := w.line("listening", "addr"); ok {
			w.url = "http://" + addr
		}
		if w.url == "" {
			return false
		}
		a, err := w.try(http.MethodGet, "/readyz", "")
		return err == nil && a.code == http.StatusOK
	})
	return w
}

// stop sends SIGTERM to the program, unless it has ended already.
func (w *bulkWorker) stop() {
	select {
	case <-w.ended:
		return
	default:
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	if code := w.wait(); code != 0 {
		w.t.Errorf("after SIGTERM the bulk worker %s ended with %d, want 0\n%s", w.name, code, tail(w.text()))
	}
}

// kill kills the program, and returns the time.
func (w *bulkWorker) kill() time.Time {
	w.t.Helper()
	at := time.Now()
	if err := w.cmd.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	w.wait()
	return at
}

// bulkHTTP keeps a few connections, but none to a killed worker.
var bulkHTTP = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Second}}

func (w *bulkWorker) try(method, path, body string, h ...headers) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for _, set := range h {
		for name, value := range set {
			r.Header.Set(name, value)
		}
	}
	res, err := bulkHTTP.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{t: w.t, asked: method + " " + path, code: res.StatusCode, header: res.Header, body: string(text)}, err
}

func (w *bulkWorker) ask(method, path, body string, h ...headers) answer {
	w.t.Helper()
	a, err := w.try(method, path, body, h...)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// bulkGroup is a group as the API returns it, or the response to an upload.
type bulkGroup struct {
	ID, Tenant, Status                 string
	Sealed, Paused                     bool
	Total, Pending, Ready              int
	NonReady                           int `json:"non_ready"`
	InFlight                           int `json:"in_flight"`
	Succeeded, Failed, Dead, Cancelled int
	Throttles                          float64   `json:"throttles_per_job"`
	RedriveOf                          string    `json:"redrive_of"`
	Callback                           string    `json:"callback"`
	SealedAt                           time.Time `json:"sealed_at"`
	StartedAt                          time.Time `json:"started_at"`
	FinishedAt                         time.Time `json:"finished_at"`
	Accepted, Duplicates               int
	Rejected                           []struct {
		Line   int
		Reason string
	}
}

func (g bulkGroup) done() int { return g.Succeeded + g.Failed + g.Dead + g.Cancelled }

// into decodes the JSON of a response.
func into[T any](a answer) T {
	a.t.Helper()
	var v T
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		a.t.Fatalf("%s: %v: %s", a.asked, err, a.body)
	}
	return v
}

func (w *bulkWorker) group(id string) bulkGroup {
	w.t.Helper()
	return into[bulkGroup](w.ask(http.MethodGet, "/v1/groups/"+id, "").want(http.StatusOK))
}

// awaits waits until a group meets a condition.
func (w *bulkWorker) awaits(id string, so func(bulkGroup) bool) bulkGroup {
	w.t.Helper()
	var g bulkGroup
	if !eventually(bulkPatience(), func() bool {
		a, err := w.try(http.MethodGet, "/v1/groups/"+id, "")
		if err != nil || a.code != http.StatusOK {
			return false
		}
		g = into[bulkGroup](a)
		return so(g)
	}) {
		w.t.Fatalf("the group is still not as it should be: %+v", g)
	}
	return g
}

// completes waits for the end of a group.
func (w *bulkWorker) completes(id string) bulkGroup {
	w.t.Helper()
	g := w.awaits(id, func(g bulkGroup) bool {
		return g.Status == "COMPLETED" || g.Status == "FAILED" || g.Status == "CANCELLED"
	})
	if g.Status != "COMPLETED" {
		w.t.Fatalf("want COMPLETED: %+v", g)
	}
	return g
}

// jobLines returns n jobs, each with an id.
func jobLines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`{"id":"j`)
		b.WriteString(strconv.Itoa(i))
		b.WriteString(`","payload":{"to":"ann@example.com","text":"hello"}}`)
		b.WriteByte('\n')
	}
	return b.String()
}

// submit sends a whole group.
func (w *bulkWorker) submit(tenant, id string, n int, query ...string) bulkGroup {
	w.t.Helper()
	path := "/v1/bulk?type=webhook&tenant=" + tenant + "&id=" + id
	if len(query) > 0 {
		path += "&" + strings.Join(query, "&")
	}
	g := into[bulkGroup](w.ask(http.MethodPost, path, jobLines(n)).want(http.StatusCreated))
	if g.Accepted != n || g.Duplicates != 0 || len(g.Rejected) != 0 {
		w.t.Fatalf("of %d jobs: %+v", n, g)
	}
	return g
}

// outcome is the outcome of a job.
type outcome struct {
	ID, Status  string
	Attempts    int
	Result      json.RawMessage
	Code, Error string
}

// results downloads the outcomes of a group, exactly one for each job. If the store fails, the response is truncated, which a client
// detects, and the download is repeated.
func (w *bulkWorker) results(id string, n int) map[string]outcome {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bulkPatience())
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/v1/groups/"+id+"/results", nil)
		if err != nil {
			w.t.Fatal(err)
		}
		res, err := bulkHTTP.Do(r)
		if err != nil {
			w.t.Fatal(err)
		}
		all, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		switch {
		case ctx.Err() != nil:
			w.t.Fatalf("results of %s: %s, %v", id, res.Status, err)
		case err != nil || res.StatusCode == http.StatusServiceUnavailable:
			continue
		case res.StatusCode != http.StatusOK:
			w.t.Fatalf("results of %s: %s", id, res.Status)
		}
		return outcomes(w.t, bytes.NewReader(all), n)
	}
}

func outcomes(t *testing.T, r io.Reader, n int) map[string]outcome {
	t.Helper()
	all := make(map[string]outcome, n)
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		}
		var o outcome
		if err != nil || json.Unmarshal(line, &o) != nil {
			t.Fatalf("an outcome: %v: %s", err, line)
		}
		if _, twice := all[o.ID]; twice {
			t.Errorf("job %s has two outcomes", o.ID)
		}
		all[o.ID] = o
	}
	if len(all) != n {
		t.Errorf("%d outcomes of %d jobs", len(all), n)
	}
	return all
}

// auditBulk runs bulkworker audit, which must find no fault.
func auditBulk(t *testing.T, file string) {
	t.Helper()
	code, out, errs := bulkCommand(t, "", "audit", "--config", file)
	if code != 0 || out != "ok\n" {
		t.Errorf("audit: exit code %d\n%s%s", code, out, errs)
	}
}

// bulkCommand runs the program to its end and returns its output.
func bulkCommand(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bulkPatience())
	defer cancel()
	cmd := exec.CommandContext(ctx, bulkworkerBinary, args...)
	cmd.Dir = tempDir(t)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// jobRun is one run of a job, as its receiver saw it.
type jobRun struct {
	group, job, worker string
	attempt            int
	fence              int64
	at                 time.Time // when the request came in
}

// jobReceiver runs the jobs and records each run.
type jobReceiver struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request, run jobRun) // nil: 200 with no body; set it before the first job

	mu   sync.Mutex
	runs []jobRun
}

func newJobReceiver(t *testing.T) *jobReceiver {
	to := &jobReceiver{}
	to.Server = httptest.NewServer(to)
	t.Cleanup(to.Close)
	return to
}

func (to *jobReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run := jobRun{at: time.Now(), group: r.Header.Get("X-Bulk-Group"), job: r.Header.Get("X-Bulk-Job"), worker: r.Header.Get("X-Worker")}
	run.attempt, _ = strconv.Atoi(r.Header.Get("X-Bulk-Attempt"))
	run.fence, _ = strconv.ParseInt(r.Header.Get("X-Bulk-Fence"), 10, 64)
	to.mu.Lock()
	to.runs = append(to.runs, run)
	to.mu.Unlock()
	_, _ = io.Copy(io.Discard, r.Body) // the server detects the end of the connection only after the body
	if to.answer != nil {
		to.answer(w, r, run)
	}
}

// of returns the runs of a group's jobs so far, or of all groups, in the order of their requests.
func (to *jobReceiver) of(group string) []jobRun {
	to.mu.Lock()
	defer to.mu.Unlock()
	var all []jobRun
	for _, r := range to.runs {
		if group == "" || r.group == group {
			all = append(all, r)
		}
	}
	return all
}

func (to *jobReceiver) count() int {
	to.mu.Lock()
	defer to.mu.Unlock()
	return len(to.runs)
}

// reached waits for the nth run of all.
func (to *jobReceiver) reached(t *testing.T, n int) {
	t.Helper()
	within(t, bulkPatience(), fmt.Sprintf("%d runs of jobs", n), func() bool { return to.count() >= n })
}

// byJob returns the runs of each job in the order of their fences. It fails the test unless each of n jobs has run.
func byJob(t *testing.T, runs []jobRun, n int) map[string][]jobRun {
	t.Helper()
	all := make(map[string][]jobRun, n)
	for _, r := range runs {
		all[r.job] = append(all[r.job], r)
	}
	if len(all) != n {
		t.Errorf("%d of %d jobs have run", len(all), n)
	}
	for job, of := range all {
		for i := 1; i < len(of); i++ {
			if of[i].fence <= of[i-1].fence {
				t.Errorf("job %s ran with fence %d after %d", job, of[i].fence, of[i-1].fence)
			}
		}
	}
	return all
}

// once fails the test unless each of n jobs has run exactly once.
func once(t *testing.T, runs []jobRun, n int) {
	t.Helper()
	for job, of := range byJob(t, runs, n) {
		if len(of) != 1 {
			t.Errorf("job %s ran %d times: %v", job, len(of), of)
		}
	}
}

// held returns an answer that responds with 200 after d, or earlier if the worker disconnects.
func held(d time.Duration) func(http.ResponseWriter, *http.Request, jobRun) {
	return func(_ http.ResponseWriter, r *http.Request, _ jobRun) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
}
