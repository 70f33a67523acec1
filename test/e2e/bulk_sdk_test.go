package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// workerSDK is an SDK for workers of sdk/worker, and how its runner in testdata/worker is started.
type workerSDK struct {
	name    string
	needs   []string // commands
	build   func(t *testing.T, dir string)
	command func(dir string) []string
}

const runners = "testdata/worker/"

var workerSDKs = []workerSDK{
	{"typescript", []string{"node"}, func(t *testing.T, dir string) {
		t.Helper()
		tsc := "../sdk/node_modules/typescript/bin/tsc"
		if _, err := os.Stat(tsc); err != nil {
			leaveOut(t, "the compiler of TypeScript is missing; run tools/npm.sh test/sdk")
		}
		compile(t, "node", tsc, "--strict", "--noUncheckedIndexedAccess", "--noImplicitOverride", "--skipLibCheck", "--target", "es2022", "--module", "es2022",
			"--lib", "es2022,dom", "--outDir", dir, "../../sdk/worker/typescript/bulkworker.ts")
		write(t, filepath.Join(dir, "package.json"), `{"type":"module"}`)
	}, func(dir string) []string {
		return []string{"node", runners + "runner.mjs", filepath.Join(dir, "bulkworker.js")}
	}},
	{"python", []string{"python3"}, func(*testing.T, string) {}, func(string) []string {
		return []string{"python3", runners + "runner.py", "../../sdk/worker/python"}
	}},
	{"java", []string{"javac", "java"}, func(t *testing.T, dir string) {
		t.Helper()
		compile(t, "javac", "--release", "17", "-Xlint:all", "-Werror", "-d", dir, "../../sdk/worker/java/BulkWorker.java", runners+"Runner.java")
	}, func(dir string) []string {
		return []string{"java", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", dir, "Runner"}
	}},
}

// leaveOut skips a test whose tools are missing, or fails it if SDK_REQUIRED is set.
func leaveOut(t *testing.T, missing string) {
	t.Helper()
	if os.Getenv("SDK_REQUIRED") != "" {
		t.Fatal(missing)
	}
	t.Skip("LEFT OUT: " + missing)
}

func compile(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// runner is a worker program.
type runner struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
	mu    sync.Mutex
	lines []string
}

// start starts a worker with 20 slots.
func (s *workerSDK) start(t *testing.T, dir, url, name, grace string) *runner {
	t.Helper()
	args := append(s.command(dir), url, "", name, "20", grace)
	r := &runner{t: t, cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	r.cmd.Stderr = &stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		for in := bufio.NewScanner(out); in.Scan(); {
			r.mu.Lock()
			r.lines = append(r.lines, in.Text())
			r.mu.Unlock()
		}
		_ = r.cmd.Wait() // the state has the rest
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		if t.Failed() {
			t.Logf("%s: %s\n%s", name, strings.Join(r.said(""), "\n"), stderr.String())
		}
	})
	return r
}

// said returns the lines with that beginning so far.
func (r *runner) said(beginning string) (found []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if strings.HasPrefix(line, beginning) {
			found = append(found, line)
		}
	}
	return found
}

// sdkJob is the outcome of a job.
type sdkJob struct {
	Status, Code string
	Attempts     int
	Result       any
}

func (j sdkJob) String() string {
	result, err := json.Marshal(j.Result)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(j.Status, " ", j.Attempts, " ", j.Code, " ", string(result))
}

// TestWorkerSDKs_RunJobs runs jobs that succeed, fail in each way, outlive a lease and are cancelled, with each SDK, and stops its worker.
func TestWorkerSDKs_RunJobs(t *testing.T) {
	for i := range workerSDKs {
		s := &workerSDKs[i]
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for _, command := range s.needs {
				if _, err := exec.LookPath(command); err != nil {
					leaveOut(t, command+" is missing")
				}
			}
			dir := tempDir(t)
			s.build(t, dir)
			f := newFarm(t, "worker: {lease: 600ms}\n")
			f.processors = ", one: {kind: pull, retry: {max: 1, base: 10ms}}, many: {kind: pull, retry: {max: 0}}"
			w := f.worker()
			r := s.start(t, dir, w.url, s.name+"-1", "0.2")
			s.outcomes(t, w)
			s.traces(t, w)
			s.batches(t, w, r)
			s.cancel(t, w, r)
			s.stop(t, w, r, dir)
		})
	}
}

func submitLines(w *bulkWorker, group, jobType string, lines ...string) {
	w.t.Helper()
	w.ask(http.MethodPost, "/v1/bulk?tenant=acme&failure_tolerance=1000&id="+group+"&type="+jobType, strings.Join(lines, "\n")).want(http.StatusCreated)
}

func jobOf(w *bulkWorker, group, id string) sdkJob {
	w.t.Helper()
	return into[sdkJob](w.ask(http.MethodGet, "/v1/groups/"+group+"/jobs/"+id, "").want(http.StatusOK))
}

func (s *workerSDK) outcomes(t *testing.T, w *bulkWorker) {
	t.Helper()
	lines := []string{`{"id":"ü\"1","payload":{"do":"ok"}}`, `{"id":"slow","payload":{"do":"sleep","ms":1500}}`}
	for _, what := range []string{"flaky", "failed", "busy", "crash", "no_json"} {
		lines = append(lines, fmt.Sprintf(`{"id":%q,"payload":{"do":%q,"text":"äöü €\u0007","n":[1.5,-7,true,null,{}]}}`, what, what))
	}
	for i := range 100 {
		lines = append(lines, fmt.Sprintf(`{"id":"j%d","payload":{"do":"ok"}}`, i))
	}
	submitLines(w, "g", "one", lines...)
	w.awaits("g", func(g bulkGroup) bool { return g.Status == "COMPLETED" })
	for id, want := range map[string]string{
		"%C3%BC%221": `succeeded 1  {"id":"ü\"1","key":"g/ü\"1"}`, "slow": `succeeded 1  {"slept":1500}`, "flaky": `succeeded 2  "ok"`, "failed": `failed 1 no_such_image null`,
		"busy": `succeeded 1  "ok"`, "crash": `dead 2 error null`, "no_json": `failed 1 bad_result null`, "j99": `succeeded 1  {"id":"j99","key":"g/j99"}`,
	} {
		if got := jobOf(w, "g", id).String(); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}

// traces submits a job with a trace and one without: the function sees the submitter's context.
func (s *workerSDK) traces(t *testing.T, w *bulkWorker) {
	t.Helper()
	w.ask(http.MethodPost, "/v1/bulk?tenant=acme&id=traced&type=one", `{"id":"j","payload":{"do":"trace"}}`, submitted).want(http.StatusCreated)
	submitLines(w, "untraced", "one", `{"id":"j","payload":{"do":"trace"}}`)
	for group, want := range map[string]string{"traced": submitted["traceparent"] + " " + submitted["tracestate"], "untraced": " "} {
		w.awaits(group, func(g bulkGroup) bool { return g.Status == "COMPLETED" })
		if got := jobOf(w, group, "j").Result; got != want {
			t.Errorf("the function of a job that is %s sees %q, want %q", group, got, want)
		}
	}
}

func (s *workerSDK) batches(t *testing.T, w *bulkWorker, r *runner) {
	t.Helper()
	for _, group := range []string{"b1", "b2"} {
		lines := []string{`{"id":"bad","payload":{"do":"failed"}}`}
		for i := range 7 {
			lines = append(lines, fmt.Sprintf(`{"id":"j%d","payload":{"do":"ok"}}`, i))
		}
		submitLines(w, group, "many", lines...)
	}
	submitLines(w, "b3", "many", `{"id":"a","payload":{"do":"missing"}}`)
	for _, group := range []string{"b1", "b2", "b3"} {
		w.awaits(group, func(g bulkGroup) bool { return g.Status == "COMPLETED" })
	}
	if got := jobOf(w, "b1", "bad").String() + ", " + jobOf(w, "b2", "j6").String() + ", " + jobOf(w, "b3", "a").String(); got != `failed 1 bad null, succeeded 1  {"id":"j6"}, dead 1 bad_batch null` {
		t.Error(got)
	}
	largest := 0
	for _, line := range r.said("batch") {
		var group string
		var groups, jobs int
		if _, err := fmt.Sscanf(line, "batch %s %d %d", &group, &groups, &jobs); err != nil || groups != 1 || jobs > 5 {
			t.Errorf("%s: %v", line, err)
		}
		largest = max(largest, jobs)
	}
	if largest != 5 {
		t.Errorf("the largest batch has %d jobs, want 5", largest)
	}
}

// A job that is cancelled is stopped in its worker.
func (s *workerSDK) cancel(t *testing.T, w *bulkWorker, r *runner) {
	t.Helper()
	submitLines(w, "c", "one", `{"id":"a","payload":{"do":"hang"}}`)
	within(t, bulkPatience(), "the job runs", func() bool { return len(r.said("start c a")) == 1 })
	w.ask(http.MethodPost, "/v1/groups/c/jobs/a/cancel", "").want(http.StatusAccepted)
	w.awaits("c", func(g bulkGroup) bool { return g.Status == "COMPLETED" && g.Cancelled == 1 })
}

// A worker that is stopped returns the jobs that have not ended within its grace: another one gets them at once. One that is killed
// leaves them until their leases end.
func (s *workerSDK) stop(t *testing.T, w *bulkWorker, r *runner, dir string) {
	t.Helper()
	submitLines(w, "h", "one", `{"id":"a","payload":{"do":"hang"}}`)
	within(t, bulkPatience(), "the job runs", func() bool { return len(r.said("start h a")) == 1 })
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-r.ended
	if code := r.cmd.ProcessState.ExitCode(); code != 0 && (s.name != "java" || code != 143) || !slices.Contains(r.said(""), "stopped") {
		t.Errorf("the worker ended with %d: %v", code, r.said("stopped"))
	}
	second := s.start(t, dir, w.url, s.name+"-2", "0.2")
	within(t, bulkPatience(), "the job runs elsewhere", func() bool { return len(second.said("start h a 1 ")) == 1 })
	_ = second.cmd.Process.Kill()
	<-second.ended
	third := s.start(t, dir, w.url, s.name+"-3", "0.2")
	within(t, bulkPatience(), "the job of the killed worker runs again", func() bool { return len(third.said("start h a 1 ")) == 1 })
	w.ask(http.MethodPost, "/v1/groups/h/cancel", "").want(http.StatusOK)
	w.awaits("h", func(g bulkGroup) bool { return g.InFlight == 0 })
	if err := third.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-third.ended
}

// The example processes jobs with two workers of which one is killed, and fails unless each job has ended once.
func TestExamples_PullSurvivesKill(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		leaveOut(t, "python3 is missing")
	}
	cmd := exec.Command("../../examples/pull/run.sh", "1000")
	cmd.Env = append(os.Environ(), "BULKWORKER="+bulkworkerBinary)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1000 jobs, 1000 outcomes, of 1000 different jobs that succeeded") {
		t.Errorf("%v\n%s", err, out)
	}
}
