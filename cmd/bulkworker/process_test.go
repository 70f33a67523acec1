package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait; it only decides how long a failure takes.
const patience = time.Minute

// eventually polls until f is nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-tick.C
	}
}

// process is a running bulk worker.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	file  string // the configuration
	url   string
	ended chan struct{} // closed when it has ended and its log is whole
	err   error         // of Wait; after ended

	mu  sync.Mutex
	log []map[string]any
}

// start starts a bulk worker with a configuration and waits until it listens. It is killed with the test if it still runs.
func start(t *testing.T, yaml string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{t: t, file: filepath.Join(dir, "bulkworker.yaml"), ended: make(chan struct{})}
	p.write(yaml)
	p.cmd = exec.Command("bulkworker", "--config", p.file, "--listen", "127.0.0.1:0")
	p.cmd.Dir = dir
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			entry := map[string]any{"raw": lines.Text()}
			_ = json.Unmarshal(lines.Bytes(), &entry) // what is no JSON is found by its lack of a msg
			p.mu.Lock()
			p.log = append(p.log, entry)
			p.mu.Unlock()
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("the log:\n%s", p.text())
		}
	})
	p.url = "http://" + fmt.Sprint(p.said("listening")["addr"])
	return p
}

func (p *process) write(yaml string) {
	p.t.Helper()
	if err := os.WriteFile(p.file, []byte(yaml), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// entries returns the log's lines with that message.
func (p *process) entries(msg string) []map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []map[string]any
	for _, e := range p.log {
		if e["msg"] == msg {
			found = append(found, e)
		}
	}
	return found
}

// said waits for the log's first line with that message.
func (p *process) said(msg string) map[string]any { return p.saidTimes(msg, 1) }

// saidTimes waits until the log has n lines with that message and returns the nth.
func (p *process) saidTimes(msg string, n int) map[string]any {
	p.t.Helper()
	var entry map[string]any
	eventually(p.t, func() error {
		if found := p.entries(msg); len(found) >= n {
			entry = found[n-1]
			return nil
		}
		return fmt.Errorf("%d log lines with msg %q in:\n%s", n, msg, p.text())
	})
	return entry
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all strings.Builder
	for _, e := range p.log {
		fmt.Fprintln(&all, e["raw"])
	}
	return all.String()
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for the process to end with exit code 0.
func (p *process) end() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("the process does not end")
	}
	if p.err != nil {
		p.t.Fatalf("it ended with %v", p.err)
	}
}

// plain keeps no connections, so that none is left when a process has ended.
var plain = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// do asks the API; headers are pairs.
func (p *process) do(method, path, body string, headers ...string) (status int, answer string) {
	p.t.Helper()
	r, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := plain.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// submit sends jobs of type webhook as one group.
func (p *process) submit(group string, jobs ...string) {
	p.t.Helper()
	var lines strings.Builder
	for _, job := range jobs {
		fmt.Fprintf(&lines, "{\"id\":%q,\"payload\":{\"job\":%q}}\n", job, job)
	}
	if status, answer := p.do("POST", "/v1/bulk?tenant=acme&type=webhook&id="+group, lines.String()); status != http.StatusCreated {
		p.t.Fatalf("submit: %d %s", status, answer)
	}
}

// group waits until a group has a status.
func (p *process) group(id, status string) map[string]any {
	p.t.Helper()
	var g map[string]any
	eventually(p.t, func() error {
		_, answer := p.do("GET", "/v1/groups/"+id, "")
		g = nil
		if err := json.Unmarshal([]byte(answer), &g); err != nil || g["status"] != status {
			return fmt.Errorf("want %s: %s", status, answer)
		}
		return nil
	})
	return g
}

func (p *process) ready(want int) {
	p.t.Helper()
	eventually(p.t, func() error {
		if status, answer := p.do("GET", "/readyz", ""); status != want {
			return fmt.Errorf("/readyz: %d %s", status, answer)
		}
		return nil
	})
}

// audit runs the command beside the worker, on its configuration.
func (p *process) audit() {
	p.t.Helper()
	cmd := exec.Command("bulkworker", "audit", "--config", p.file)
	cmd.Dir = p.cmd.Dir
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ok\n" {
		p.t.Fatalf("audit: %v\n%s", err, out)
	}
}

// delivery is a request that a receiver got.
type delivery struct {
	header http.Header
	path   string
	body   []byte
}

// receiver accepts jobs and callbacks. It calls hold before it responds.
type receiver struct {
	*httptest.Server
	hold func(d delivery, gone <-chan struct{})

	mu  sync.Mutex
	all []delivery
}

func newReceiver(t *testing.T, hold func(d delivery, gone <-chan struct{})) *receiver {
	r := &receiver{hold: hold}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return // the worker died
		}
		d := delivery{header: q.Header.Clone(), path: q.URL.Path, body: body}
		r.mu.Lock()
		r.all = append(r.all, d)
		r.mu.Unlock()
		if r.hold != nil {
			r.hold(d, q.Context().Done())
		}
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got(path string) []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []delivery
	for _, d := range r.all {
		if d.path == path {
			found = append(found, d)
		}
	}
	return found
}

// await waits for n deliveries to a path.
func (r *receiver) await(t *testing.T, path string, n int) []delivery {
	t.Helper()
	var found []delivery
	eventually(t, func() error {
		if found = r.got(path); len(found) < n {
			return fmt.Errorf("%d of %d deliveries to %s", len(found), n, path)
		}
		return nil
	})
	return found
}

// replace replaces the content of a file atomically: a reader sees the old or the new text.
func replace(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name+".next", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".next", name); err != nil {
		t.Fatal(err)
	}
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// signalled reports whether a process was ended by that signal.
func signalled(err error, s syscall.Signal) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == s
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !bytes.Contains([]byte(text), []byte(part)) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}
