package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What the README shows: the program with nothing but an address to send jobs to, and its commands.
func TestBulkReadme_CommandsWork(t *testing.T) {
	t.Parallel()
	shop := startShop(t)
	// Its store is in the directory that it runs in.
	config := filepath.Join(tempDir(t), "bulkworker.yaml")
	data := tempDir(t)
	write(t, config, fmt.Sprintf("store: {dir: %q}\n", data))
	w := startWorker(t, "readme", config, "ANTEROOM_PROCESSORS__WEBHOOK__URL="+shop+"/jobs", "ANTEROOM_RATE__GLOBAL=500")
	const n = 800
	var jobs strings.Builder
	for i := range n {
		fmt.Fprintf(&jobs, "{\"id\":\"m%d\",\"payload\":{\"to\":\"user%d@example.com\",\"text\":\"hello\"}}\n", i+1, i+1)
	}
	file := filepath.Join(tempDir(t), "jobs.ndjson")
	write(t, file, jobs.String())

	code, out, errs := bulkCommand(t, "", "submit", "--server", w.url, "--type", "webhook", "--tenant", "acme", "--watch", file)
	group := strings.TrimSpace(out)
	if code != 0 || group == "" || !strings.Contains(errs, "100%") {
		t.Fatalf("submit: exit code %d\n%s\n%s", code, out, errs)
	}
	code, out, errs = bulkCommand(t, "", "status", "--server", w.url)
	if code != 0 || !strings.Contains(out, group) || !strings.Contains(out, "COMPLETED") {
		t.Errorf("status: exit code %d\n%s%s", code, out, errs)
	}
	code, out, errs = bulkCommand(t, "", "results", "--server", w.url, group)
	if code != 0 {
		t.Fatalf("results: exit code %d\n%s%s", code, out, errs)
	}
	for id, o := range outcomes(t, strings.NewReader(out), n) {
		if o.Status != "succeeded" || o.Attempts != 1 {
			t.Errorf("job %s: %+v", id, o)
		}
	}
	auditBulk(t, config)
	w.stop()
	auditBulk(t, config) // on a store that it starts for itself
}

// Every command on a group that goes wrong, is mended and driven again.
func TestBulkCommands(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "worker: {count: 4, max_retries: 0}")
	var mended, free atomic.Bool
	goOn := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(goOn) })
	defer letGo()
	f.to.answer = func(w http.ResponseWriter, r *http.Request, run jobRun) {
		switch {
		case run.group == "long" && !free.Load():
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
		case run.job == "dies" && !mended.Load():
			http.Error(w, "out of order", http.StatusInternalServerError)
		case run.job == "fails":
			http.Error(w, "no such person", http.StatusUnprocessableEntity)
		default:
			_, _ = io.WriteString(w, `{"amount":2.5}`)
		}
	}
	w := f.worker()
	command := func(code int, stdin string, args ...string) string {
		t.Helper()
		got, out, errs := bulkCommand(t, stdin, append(args, "--server", w.url)...)
		if got != code {
			t.Errorf("%v: exit code %d, want %d\n%s%s", args, got, code, out, errs)
		}
		return out + errs
	}
	says := func(out string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("no %q in\n%s", part, out)
			}
		}
	}

	lines := `{"id":"a","payload":1}` + "\n" + `{"id":"fails","payload":1}` + "\n" + `{"id":"dies","payload":{"n":7}}` + "\n"
	says(command(1, lines, "submit", "--type", "webhook", "--tenant", "acme", "--id", "g", "--aggregate", "sum:amount", "--watch", "-"), "g\n", "FAILED")
	says(command(0, "", "status", "g"), "FAILED", "1 succeeded, 1 failed, 1 dead")
	says(command(0, "", "results", "g"), `"id":"a"`, `"http_422"`, `"http_500"`)
	says(command(0, "", "results", "--aggregate", "g"), "2.5")
	says(command(0, "", "results", "--dead", "g"), `"id":"dies"`, `{"n":7}`)
	mended.Store(true)
	redriven := strings.TrimSpace(strings.SplitN(command(0, "", "redrive", "--watch", "g"), "\n", 2)[0])
	if r := w.group(redriven); r.RedriveOf != "g" || r.Succeeded != 1 || r.Status != "COMPLETED" {
		t.Errorf("the redrive: %+v", r)
	}
	command(1, "", "redrive", "g") // nothing is dead any more

	w.submit("acme", "long", 12)
	within(t, patience, "four jobs run", func() bool { return len(f.to.of("long")) == 4 })
	says(command(0, "", "pause", "long"), "paused", "0 of 12")
	free.Store(true)
	letGo()
	w.awaits("long", func(g bulkGroup) bool { return g.Succeeded == 4 && g.InFlight == 0 })
	if n := len(f.to.of("long")); n != 4 {
		t.Errorf("%d jobs of a paused group have run", n)
	}
	says(command(0, "", "resume", "long"), "long")
	says(command(0, "", "watch", "long"), "12")
	w.completes("long")
	command(1, "", "cancel", "long") // has ended

	w.ask(http.MethodPost, "/v1/groups", `{"id":"open","tenant":"acme","type":"webhook","start":"sealed"}`).want(http.StatusCreated)
	w.ask(http.MethodPost, "/v1/groups/open/jobs", jobLines(5)).want(http.StatusOK)
	says(command(0, "", "cancel", "open"), "CANCELLED", "5 of 5")
	command(1, "", "watch", "open")
	says(command(1, "", "status", "nobody"), "nobody")
	if n := len(f.to.of("open")); n != 0 {
		t.Errorf("%d jobs of a group that was cancelled before its seal have run", n)
	}
}

// Requests are signed, and verify by the method of the documentation.
func TestBulkSignatures(t *testing.T) {
	t.Parallel()
	const hookSecret, callbackSecret = "e2e-hook-secret-0123456789", "e2e-callback-secret-0123456789"
	secret := func(text string) string {
		name := filepath.Join(tempDir(t), "secret")
		write(t, name, text+"\n")
		return name
	}
	type post struct {
		header http.Header
		body   []byte
	}
	jobs, calls := make(chan post, 10), make(chan post, 10)
	var refuse atomic.Int64
	refuse.Store(1)
	team := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if r.URL.Path == "/jobs" {
			jobs <- post{r.Header, body}
			return
		}
		calls <- post{r.Header, body}
		if refuse.Add(-1) >= 0 {
			http.Error(w, "later", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(team.Close)
	config := filepath.Join(tempDir(t), "bulkworker.yaml")
	write(t, config, fmt.Sprintf(`
store: {dir: %q}
callbacks: {allow: [%q], secret_file: %q}
processors: {webhook: {url: "%s/jobs", secret_file: %q}}
`, tempDir(t), strings.TrimPrefix(team.URL, "http://"), secret(callbackSecret), team.URL, secret(hookSecret)))
	t.Cleanup(func() { auditBulk(t, config) })
	w := startWorker(t, "signing", config)

	signed := func(p post, secret string) {
		t.Helper()
		var seconds int64
		var mac string
		if _, err := fmt.Sscanf(p.header.Get("X-Bulk-Signature"), "t=%d,v1=%64s", &seconds, &mac); err != nil {
			t.Fatalf("%q: %v", p.header.Get("X-Bulk-Signature"), err)
		}
		sum := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(sum, "%d.%s", seconds, p.body)
		if want := hex.EncodeToString(sum.Sum(nil)); mac != want {
			t.Errorf("the signature is %s, want %s of %s", mac, want, p.body)
		}
		if age := time.Since(time.Unix(seconds, 0)).Abs(); age > 5*time.Minute {
			t.Errorf("the signature is %s old", age)
		}
	}
	wait := func(from <-chan post, what string) post {
		t.Helper()
		select {
		case p := <-from:
			return p
		case <-time.After(patience):
			t.Fatalf("no %s", what)
			return post{}
		}
	}
	w.ask(http.MethodPost, "/v1/bulk?tenant=acme&type=webhook&id=g&callback_url="+team.URL+"/done", `{"id":"j","payload":{"to": "ann"}}`).want(http.StatusCreated)
	job := wait(jobs, "job")
	signed(job, hookSecret)
	for name, value := range map[string]string{"X-Bulk-Job": "j", "X-Bulk-Group": "g", "X-Bulk-Tenant": "acme", "X-Bulk-Attempt": "1", "Idempotency-Key": "g/j"} {
		if got := job.header.Get(name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	// It is called until it is taken.
	for range 2 {
		call := wait(calls, "callback")
		signed(call, callbackSecret)
		var g bulkGroup
		if err := json.Unmarshal(call.body, &g); err != nil || g.ID != "g" || g.Status != "COMPLETED" || g.Succeeded != 1 {
			t.Errorf("%v: %s", err, call.body)
		}
	}
	w.awaits("g", func(g bulkGroup) bool { return g.Callback == "done" })
	if log := w.text(); strings.Contains(log, hookSecret) || strings.Contains(log, callbackSecret) {
		t.Error("a secret is in the log")
	}
}

// Two processes share the work; one that is told to end lets its running jobs end, gives back what it cannot finish in time,
// and the other does the rest.
func TestBulkSIGTERM(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "worker: {count: 4, lease: 60s, shutdown_grace: 10s}")
	stuck := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(stuck) })
	defer letGo()
	var first atomic.Value // of the process that goes
	first.Store("")
	f.to.answer = func(w http.ResponseWriter, r *http.Request, run jobRun) {
		if run.job == "j0" && run.worker == first.Load() { // this one takes longer than the grace
			<-r.Context().Done()
			return
		}
		if run.worker == first.Load() {
			select {
			case <-stuck:
			case <-r.Context().Done():
			}
		}
	}
	a := f.worker()
	first.Store(a.name)
	a.submit("acme", "g", 40)
	within(t, patience, "it has all hands full", func() bool { return f.to.count() == 4 })
	b := f.worker()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, "it says that it goes", func() bool {
		answer, err := a.try(http.MethodGet, "/readyz", "")
		return err != nil || answer.code == http.StatusServiceUnavailable
	})
	letGo()
	if code := a.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, tail(a.text()))
	}
	// The lease of a minute has not ended: what was not done was given back.
	b.completes("g")
	for job, of := range byJob(t, f.to.of("g"), 40) {
		want := 1
		if job == "j0" {
			want = 2
		}
		if len(of) != want || of[len(of)-1].attempt != 1 {
			t.Errorf("job %s: %v", job, of)
		}
	}
	if len(b.results("g", 40)) != 40 {
		t.Error("the results are not complete")
	}
}

// Two processes on one Redis share the work, and each shows all of it.
func TestBulkWorkers_ShareJobs(t *testing.T) {
	t.Parallel()
	f := newFarm(t, "rate: {global: 400}\nworker: {count: 4}")
	f.to.answer = held(20 * time.Millisecond)
	a, b := f.worker(), f.worker()
	const n = 400
	a.submit("acme", "one", n)
	b.submit("globex", "two", n)
	a.completes("two")
	b.completes("one")
	did := map[string]int{}
	for _, group := range []string{"one", "two"} {
		runs := f.to.of(group)
		once(t, runs, n)
		for _, r := range runs {
			did[r.worker]++
		}
		a.results(group, n)
	}
	if did[a.name] == 0 || did[b.name] == 0 {
		t.Errorf("they did %v", did)
	}
}

// A gateway and a bulk worker live on one embedded store, whichever comes and goes first.
func TestBulkWorker_BesideGateway(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(50, 50))}})
	f := newFarmOn(t, nil, fmt.Sprintf("{dir: %q}", g.dir), "")
	w := f.worker()
	w.submit("acme", "before", 50)
	newClient(t, g).get(g, "/").want(http.StatusOK)
	w.completes("before")
	g.signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 {
		t.Errorf("the gateway ended with %d", code)
	}
	w.submit("acme", "alone", 50)
	w.completes("alone")
	g.restart()
	until(t, "the gateway has its store again", func() bool { return adminOf(t, g).metric("anteroom_store_up 1") })
	newClient(t, g).get(g, "/").want(http.StatusOK)
	w.submit("acme", "after", 50)
	w.completes("after")
	for _, group := range []string{"before", "alone", "after"} {
		once(t, f.to.of(group), 50)
	}
	w.stop()
	newClient(t, g).get(g, "/").want(http.StatusOK)
	if _, err := os.Stat(filepath.Join(g.dir, "redis.sock")); err != nil {
		t.Errorf("the store went with the bulk worker: %v", err)
	}
}
