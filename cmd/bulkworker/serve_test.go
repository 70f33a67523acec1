package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

const (
	hookSecret     = "hook-secret-0123456789"
	callbackSecret = "callback-secret-0123456789"
)

func TestServe_FromSubmissionToCallback(t *testing.T) {
	to := newReceiver(t, nil)
	host := strings.TrimPrefix(to.URL, "http://")
	p := start(t, fmt.Sprintf(`
store: {dir: data}
callbacks: {allow: [%q], secret_file: %q}
processors: {webhook: {url: "%s/jobs", secret_file: %q, headers: {X-Own: mine}}}
`, host, secretFile(t, callbackSecret), to.URL, secretFile(t, hookSecret)))
	p.ready(http.StatusOK)

	status, answer := p.do("POST", "/v1/groups", `{"tenant":"acme","type":"webhook","callback_url":"http://10.0.0.1/"}`)
	if status != http.StatusUnprocessableEntity || !strings.Contains(answer, "callbacks.allow") {
		t.Error("a callback to a private address:", status, answer)
	}
	if status, answer := p.do("POST", "/v1/groups", fmt.Sprintf(`{"id":"g1","tenant":"acme","type":"webhook","callback_url":"%s/done"}`, to.URL)); status != http.StatusCreated {
		t.Fatal(status, answer)
	}
	if status, answer := p.do("POST", "/v1/groups/g1/jobs", "{\"id\":\"a\",\"payload\":{\"n\":1}}\n{\"id\":\"b\",\"type\":\"nonsense\",\"payload\":1}\n"); status != http.StatusOK || !strings.Contains(answer, `"accepted":1`) {
		t.Fatal(status, answer)
	}
	if status, answer := p.do("POST", "/v1/groups/g1/seal", ""); status != http.StatusOK {
		t.Fatal(status, answer)
	}
	p.group("g1", "COMPLETED")

	job := to.await(t, "/jobs", 1)[0]
	if err := outbound.Verify([]byte(hookSecret), job.header.Get("X-Bulk-Signature"), time.Now(), job.body); err != nil {
		t.Error("the job's signature:", err)
	}
	if string(job.body) != `{"n":1}` || job.header.Get("X-Bulk-Job") != "a" || job.header.Get("X-Bulk-Attempt") != "1" || job.header.Get("X-Own") != "mine" {
		t.Errorf("%s %v", job.body, job.header)
	}
	done := to.await(t, "/done", 1)[0]
	if err := outbound.Verify([]byte(callbackSecret), done.header.Get("X-Bulk-Signature"), time.Now(), done.body); err != nil {
		t.Error("the callback's signature:", err)
	}
	var g struct{ ID, Status string }
	if err := json.Unmarshal(done.body, &g); err != nil || g.ID != "g1" || g.Status != "COMPLETED" {
		t.Errorf("callback %s: %v", done.body, err)
	}

	_, page := p.do("GET", "/", "")
	contains(t, page, "<!doctype html>")
	eventually(t, func() error { // counts follow what they count
		_, metrics := p.do("GET", "/metrics", "")
		for _, part := range []string{"bulk_action_enqueued_total 1\n", `bulk_action_job_runs_total{type="webhook",verdict="success"} 1`, "go_goroutines", `bulk_action_store_script_seconds_count{script="jobs_pull"}`} {
			if !strings.Contains(metrics, part) {
				return fmt.Errorf("no %q in:\n%s", part, metrics)
			}
		}
		return nil
	})
	p.audit() // on the embedded store that it shares with the worker

	p.signal(syscall.SIGTERM)
	p.end()
	for _, e := range p.log {
		if e["msg"] == nil {
			t.Errorf("a log line that is no JSON: %s", e["raw"])
		}
	}
	if text := p.text(); strings.Contains(text, hookSecret) || strings.Contains(text, callbackSecret) {
		t.Error("a secret is in the log")
	}
}

// A webhook gets the jobs of a group in batches and answers with a verdict for each.
func TestServe_SendsBatches(t *testing.T) {
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var jobs []struct {
			ID      string
			Payload int
		}
		if err := json.NewDecoder(r.Body).Decode(&jobs); err != nil || len(jobs) > 4 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var verdicts []map[string]any
		for _, j := range jobs {
			v := map[string]any{"id": j.ID, "verdict": "done", "result": map[string]int{"n": j.Payload, "of": len(jobs)}}
			if j.ID == "bad" {
				v = map[string]any{"id": j.ID, "verdict": "failed", "code": "no_such_image"}
			}
			verdicts = append(verdicts, v)
		}
		_ = json.NewEncoder(w).Encode(verdicts)
	}))
	t.Cleanup(to.Close)
	p := start(t, fmt.Sprintf("store: {url: %q}\nprocessors: {webhook: {url: %q, batching: {max: 4, wait: 500ms}}}\n", redistest.Server(t).URL(), to.URL))
	p.ready(http.StatusOK)
	lines := `{"id":"bad","payload":0}`
	for i := range 7 {
		lines += fmt.Sprintf("\n{\"id\":\"j%d\",\"payload\":%d}", i, i)
	}
	if status, answer := p.do("POST", "/v1/bulk?id=g&tenant=acme&type=webhook&failure_tolerance=1", lines); status != http.StatusCreated {
		t.Fatal(status, answer)
	}
	p.group("g", "COMPLETED")
	if _, answer := p.do("GET", "/v1/groups/g/jobs/j5", ""); !strings.Contains(answer, `"result":{"n":5,"of":4}`) {
		t.Error(answer)
	}
	if _, answer := p.do("GET", "/v1/groups/g/jobs/bad", ""); !strings.Contains(answer, `"status":"failed"`) || !strings.Contains(answer, `"code":"no_such_image"`) {
		t.Error(answer)
	}
}

// A team's own worker runs the jobs; bulkworker serves the API, ends groups and sends callbacks.
func TestServe_WithoutWorkers(t *testing.T) {
	to := newReceiver(t, nil)
	server := redistest.Server(t)
	p := start(t, fmt.Sprintf("store: {url: %q}\nworker: {count: 0}\ncallbacks: {allow: [%q]}\n", server.URL(), strings.TrimPrefix(to.URL, "http://")))
	p.ready(http.StatusOK)
	status, answer := p.do("POST", "/v1/bulk?id=g1&tenant=acme&type=invoice&callback_url="+to.URL+"/done", "{\"payload\":1}\n{\"payload\":2,\"type\":\"refund\"}\n")
	if status != http.StatusCreated || !strings.Contains(answer, `"accepted":2`) {
		t.Fatal(status, answer)
	}
	p.said("no jobs run here: worker.count is 0")

	s, err := store.New(store.Options{Client: server.Client(), Prefix: "wr", Settings: store.Defaults()})
	if err != nil {
		t.Fatal(err)
	}
	team, err := bulk.New(bulk.Options{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	echo := bulk.HandlerFunc(func(_ context.Context, job *bulk.Job) ([]byte, error) { return job.Payload, nil })
	team.Register("invoice", echo)
	team.Register("refund", echo)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- team.Run(ctx) }()
	if g := p.group("g1", "COMPLETED"); g["succeeded"] != float64(2) {
		t.Error(g)
	}
	to.await(t, "/done", 1)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	p.audit()
}

// After SIGTERM no job starts, running jobs end, and /readyz reports the shutdown to load balancers.
func TestServe_LetsRunningJobsEnd(t *testing.T) {
	goOn := make(chan struct{})
	var once sync.Once
	release := func() { once.Do(func() { close(goOn) }) }
	to := newReceiver(t, func(_ delivery, gone <-chan struct{}) {
		select {
		case <-goOn:
		case <-gone:
		}
	})
	t.Cleanup(release)
	yaml := fmt.Sprintf("store: {url: %q}\nworker: {count: 1}\nprocessors: {webhook: {url: \"%s/jobs\", timeout: 1m}}\n", redistest.Server(t).URL(), to.URL)
	p := start(t, yaml)
	p.submit("g1", "a", "b", "c")
	to.await(t, "/jobs", 1)
	p.signal(syscall.SIGTERM)
	p.ready(http.StatusServiceUnavailable)
	if status, answer := p.do("GET", "/healthz", ""); status != http.StatusOK {
		t.Error("while it ends:", status, answer)
	}
	release()
	p.end()
	if n := len(to.got("/jobs")); n != 1 {
		t.Errorf("%d jobs were started, and one worker had one when SIGTERM came", n)
	}
	p.audit()

	next := start(t, yaml)
	if g := next.group("g1", "COMPLETED"); g["succeeded"] != float64(3) {
		t.Error(g)
	}
	for _, d := range to.got("/jobs") {
		if d.header.Get("X-Bulk-Attempt") != "1" {
			t.Errorf("a try was spent on job %s", d.header.Get("X-Bulk-Job"))
		}
	}
	if n := len(to.got("/jobs")); n != 3 {
		t.Errorf("%d runs of 3 jobs", n)
	}
}

// Jobs that have not ended within worker.shutdown_grace are returned at once, and no try is spent.
func TestServe_ReturnsUnfinishedJobs(t *testing.T) {
	var mu sync.Mutex
	stuck := true
	to := newReceiver(t, func(_ delivery, gone <-chan struct{}) {
		mu.Lock()
		wait := stuck
		mu.Unlock()
		if wait {
			<-gone
		}
	})
	yaml := fmt.Sprintf("store: {url: %q}\nworker: {count: 2, lease: 1h, shutdown_grace: 100ms}\nprocessors: {webhook: {url: \"%s/jobs\", timeout: 1h}}\n", redistest.Server(t).URL(), to.URL)
	p := start(t, yaml)
	p.submit("g1", "a", "b", "c")
	to.await(t, "/jobs", 2)
	p.signal(syscall.SIGTERM)
	p.end()
	p.audit()

	mu.Lock()
	stuck = false
	mu.Unlock()
	next := start(t, yaml)
	next.group("g1", "COMPLETED") // long before the lease of one hour would have ended
	for _, d := range to.got("/jobs") {
		if d.header.Get("X-Bulk-Attempt") != "1" {
			t.Errorf("a try was spent on job %s", d.header.Get("X-Bulk-Job"))
		}
	}
}

func TestServe_SecondSignalEndsImmediately(t *testing.T) {
	to := newReceiver(t, func(_ delivery, gone <-chan struct{}) { <-gone })
	p := start(t, fmt.Sprintf("store: {url: %q}\nworker: {shutdown_grace: 1h, job_timeout: 1h}\nprocessors: {webhook: {url: \"%s/jobs\", timeout: 1h}}\n", redistest.Server(t).URL(), to.URL))
	p.submit("g1", "a")
	to.await(t, "/jobs", 1)
	p.signal(syscall.SIGTERM)
	p.ready(http.StatusServiceUnavailable)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("the process does not end")
	}
	if !signalled(p.err, syscall.SIGTERM) {
		t.Errorf("it ended with %v", p.err)
	}
}

func TestReload_AppliesSettings(t *testing.T) {
	to := newReceiver(t, nil)
	token := secretFile(t, "teams-token-of-old")
	first := fmt.Sprintf("store: {url: %q}\nadmin: {token: operators-token-1}\napi_tokens: [{name: ann, tenants: [acme], token_file: %q}]\n", redistest.Server(t).URL(), token)
	p := start(t, first+fmt.Sprintf("processors: {webhook: {url: \"%s/old\"}}\n", to.URL))
	status := func(token string) int {
		code, _ := p.do("GET", "/v1/groups", "", "Authorization", "Bearer "+token)
		return code
	}
	if status("operators-token-1") != 200 || status("teams-token-of-old") != 200 || status("operators-token-2") != 401 {
		t.Fatal("tokens at first")
	}

	// After SIGHUP rates, tokens and the targets of jobs change at once; the log names the settings that need a restart.
	p.write(strings.Replace(first, "operators-token-1", "operators-token-2", 1) + fmt.Sprintf(`
rate: {global: 123.5}
worker: {count: 3, lease: 7s}
listen: "127.0.0.1:1"
processors: {webhook: {url: "%s/new"}, invoice: {kind: webhook, url: "%s/invoice"}}
`, to.URL, to.URL))
	p.signal(syscall.SIGHUP)
	p.said("configuration reloaded")
	if later := fmt.Sprint(p.said("these settings need a restart; the old values stay in force")["settings"]); later != "[worker.lease processors.invoice]" {
		t.Error("named:", later)
	}
	if status("operators-token-1") != 401 || status("teams-token-of-old") != 200 || status("operators-token-2") != 200 {
		t.Error("tokens after the reload")
	}
	admin := []string{"Authorization", "Bearer operators-token-2"}
	if _, answer := p.do("GET", "/v1/limits", "", admin...); !strings.Contains(answer, `"global":123.5`) {
		t.Error("limits:", answer)
	}
	eventually(t, func() error {
		if _, answer := p.do("GET", "/metrics", ""); !strings.Contains(answer, "bulk_action_workers 3\n") {
			return errors.New("workers are not 3")
		}
		return nil
	})
	if code, answer := p.do("POST", "/v1/bulk?tenant=acme&type=webhook&id=g1", `{"payload":1}`, admin...); code != 201 {
		t.Fatal(code, answer)
	}
	to.await(t, "/new", 1)
	if n := len(to.got("/old")); n != 0 {
		t.Errorf("%d jobs went to the old address", n)
	}

	// A changed file is read without a signal.
	replace(t, token, "teams-token-of-new")
	p.saidTimes("configuration reloaded", 2)
	if status("teams-token-of-old") != 401 || status("teams-token-of-new") != 200 {
		t.Error("tokens after their file changed")
	}

	// A bad file changes nothing.
	p.write("rate: {global: 0}\nadmin: {token: operators-token-3}\n")
	p.signal(syscall.SIGHUP)
	contains(t, fmt.Sprint(p.said("cannot reload the configuration; the old one stays in force")["error"]), "rate.global: 0 is too small")
	if status("operators-token-3") != 401 || status("operators-token-2") != 200 {
		t.Error("tokens after a bad file")
	}
	eventually(t, func() error {
		if _, answer := p.do("GET", "/metrics", ""); !strings.Contains(answer, "bulk_action_config_last_reload_successful 0\n") {
			return errors.New("the metrics do not show the failed reload")
		}
		return nil
	})
	p.signal(syscall.SIGTERM)
	p.end()
}

// A worker that starts before its store waits for the store and logs this.
func TestServe_StartsWithoutStore(t *testing.T) {
	to := newReceiver(t, nil)
	redis := redistest.Server(t)
	redis.Kill()
	p := start(t, fmt.Sprintf("store: {url: %q}\nprocessors: {webhook: {url: \"%s/jobs\"}}\n", redis.URL(), to.URL))
	p.said("cannot reach the store; no job is accepted or started until it is back")
	p.ready(http.StatusServiceUnavailable)
	redis.Restart()
	p.ready(http.StatusOK)
	p.submit("g1", "a")
	p.group("g1", "COMPLETED")
	p.signal(syscall.SIGTERM)
	p.end()
}

// A store that is unreachable at the start, and then has an unsuitable layout or version, ends the worker.
func TestServe_EndsWithUnsuitableStore(t *testing.T) {
	redis := redistest.Server(t, "--maxmemory-policy", "allkeys-lru")
	redis.Kill()
	p := start(t, fmt.Sprintf("store: {url: %q}\n", redis.URL()))
	redis.Restart()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("the process does not end")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	contains(t, p.text(), "bulkworker: store.url unix://", "maxmemory-policy is allkeys-lru")
}

// The jobs of a killed worker run again when their leases have ended, and no try is spent.
func TestServe_JobsSurviveKill(t *testing.T) {
	short.Skip(t, "waits for the clock")
	stuck := make(chan struct{})
	to := newReceiver(t, func(_ delivery, gone <-chan struct{}) {
		select {
		case <-stuck:
		case <-gone:
		}
	})
	yaml := fmt.Sprintf("store: {url: %q}\nworker: {count: 2, lease: 4s}\nprocessors: {webhook: {url: \"%s/jobs\"}}\n", redistest.Server(t).URL(), to.URL)
	p := start(t, yaml)
	p.submit("g1", "a", "b", "c")
	if status, answer := p.do("POST", "/v1/bulk?tenant=acme&type=webhook&id=g2&after="+url.QueryEscape(`["g1"]`), `{"id":"behind","payload":1}`); status != http.StatusCreated {
		t.Fatal(status, answer)
	}
	to.await(t, "/jobs", 2)
	p.signal(syscall.SIGKILL)
	<-p.ended
	close(stuck)

	next := start(t, yaml)
	next.group("g1", "COMPLETED")
	next.group("g2", "COMPLETED") // which waited for g1
	runs := make(map[string]int)
	for _, d := range to.got("/jobs") {
		runs[d.header.Get("X-Bulk-Job")]++
		if d.header.Get("X-Bulk-Attempt") != "1" {
			t.Errorf("a try was spent on job %s", d.header.Get("X-Bulk-Job"))
		}
	}
	if fmt.Sprint(runs) != "map[a:2 b:2 behind:1 c:1]" {
		t.Errorf("runs: %v", runs)
	}
	next.audit()
}

// Commands beside running workers once opened a new embedded store where the configuration was forgotten, and reported on that.
func TestCommands_OpenNoNewStore(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{"shards", "list"}, {"shards", "drain", "0"}, {"shards", "open", "0"}, {"audit"}} {
		cmd := newRoot(nil)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(args)
		err := cmd.Execute()
		var exit interface{ ExitCode() int }
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Fatalf("%q: %v", args, err)
		}
		for _, part := range []string{"store.url is not set", `store.dir "./data"`, "--config", "ANTEROOM_STORE__URL"} {
			contains(t, err.Error(), part)
		}
		if _, err := os.Stat("data"); err == nil {
			t.Fatalf("%q created the directory of a store", args)
		}
	}
}

func TestAudit_NamesViolations(t *testing.T) {
	redis := redistest.Server(t)
	if err := redis.Client().Set(t.Context(), "wr:{bulk:0}:stray", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bulkworker", "audit")
	cmd.Env = append(os.Environ(), "ANTEROOM_STORE__URL="+redis.URL())
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("it ended with %v", err)
	}
	contains(t, string(out), "wr:{bulk:0}:stray")
	contains(t, string(exit.Stderr), "bulkworker: audit: the invariants above are violated")
}

// TestAudit_Repairs restores the housekeeping of a sealed group that nothing would have ended.
func TestAudit_Repairs(t *testing.T) {
	redis := redistest.Server(t)
	s, err := store.New(store.Options{Client: redis.Client(), Prefix: "wr", Settings: store.Defaults()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CreateGroup(t.Context(), store.GroupSpec{ID: "g", Tenant: "acme", Type: "webhook"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if err := redis.Client().Del(t.Context(), "wr:{bulk:0}:agenda").Err(); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"audit"}, "retention: group g is COMPLETED and has no housekeeping planned\n"},
		{[]string{"audit", "--repair"}, "repaired: group g: agenda\nok\n"},
		{[]string{"audit", "--repair"}, "ok\n"},
	} {
		cmd := exec.Command("bulkworker", row.args...)
		cmd.Env = append(os.Environ(), "ANTEROOM_STORE__URL="+redis.URL())
		if out, _ := cmd.Output(); string(out) != row.want {
			t.Errorf("%v printed %q, want %q", row.args, out, row.want)
		}
	}
}

// With several shards groups are on several servers; the API lists all of them, and names the one that is away.
func TestServe_SpreadsGroupsOverServers(t *testing.T) {
	to := newReceiver(t, nil)
	a, b := redistest.Server(t), redistest.Server(t)
	config := fmt.Sprintf("shards: 2\nstore: {urls: [%q, %q]}\nprocessors: {webhook: {url: %q}}\n", a.URL(), b.URL(), to.URL+"/jobs")
	p := start(t, config)
	p.ready(http.StatusOK)
	const groups = 6
	for i := range groups {
		id := fmt.Sprintf("g%d", 6+i)
		p.submit(id, "1", "2")
		p.group(id, "COMPLETED")
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := newRoot(nil)
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append(args, "--config", p.file))
		err := cmd.Execute()
		return out.String(), err
	}
	list, err := run("shards", "list")
	if err != nil || !strings.Contains(list, "shard 0  open") || !strings.Contains(list, "shard 1  open") || strings.Contains(list, " 0 groups") {
		t.Errorf("shards list: %v\n%s", err, list)
	}
	if text, err := run("shards", "drain", "1"); err != nil || !strings.HasPrefix(text, "shard 1 drains") {
		t.Errorf("shards drain 1: %q, %v", text, err)
	}
	if text, err := run("shards", "open", "1"); err != nil || !strings.HasPrefix(text, "shard 1 is open") {
		t.Errorf("shards open 1: %q, %v", text, err)
	}
	if _, err := run("shards", "open", "2"); err == nil || !strings.Contains(err.Error(), "the configuration has shards: 2") {
		t.Errorf("shards open 2: %v", err)
	}
	p.audit()
	b.Kill()
	status, answer := p.do("GET", "/v1/groups", "")
	if status != http.StatusOK || !strings.Contains(answer, `"shards_away":[1]`) {
		t.Error(status, answer)
	}
	p.said("cannot reach the store; will continue when it is back")
	var page struct{ Groups []struct{ ID string } }
	if err := json.Unmarshal([]byte(answer), &page); err != nil || len(page.Groups) == 0 || len(page.Groups) == groups {
		t.Fatal(err, answer)
	}
	if status, answer := p.do("GET", "/v1/groups/"+page.Groups[0].ID+"/results", ""); status != http.StatusOK {
		t.Error(status, answer)
	}
}
