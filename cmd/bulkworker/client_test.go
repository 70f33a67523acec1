package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/anteroom/anteroom/internal/redistest"
)

const operatorsToken = "operators-token-0123456789"

// startForClients starts a bulk worker that asks for a token, and posts jobs to a receiver that answers with the status that a
// job's payload asks for, or with the payload.
func startForClients(t *testing.T) *process {
	t.Helper()
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the worker died
		}
		var job struct{ Status int }
		if json.Unmarshal(body, &job) == nil && job.Status != 0 {
			w.WriteHeader(job.Status)
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(to.Close)
	return start(t, fmt.Sprintf(`
admin: {token: %s}
store: {url: %q}
worker: {max_retries: 0}
processors: {webhook: {url: %q}}
`, operatorsToken, redistest.Server(t).URL(), to.URL))
}

// The scripts run the commands against a bulk worker that is a process of its own.
func TestClientScripts(t *testing.T) {
	p := startForClients(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/client",
		Setup: func(env *testscript.Env) error {
			env.Setenv("BULKWORKER_SERVER", p.url)
			env.Setenv("BULKWORKER_TOKEN", operatorsToken)
			return nil
		},
	})
	p.audit()
}

// submit is killed in the middle of its input; the same command once more brings the rest in, and nothing twice.
func TestSubmitGoesOnWhereItWasKilled(t *testing.T) {
	p := startForClients(t)
	total := func() float64 {
		_, answer := p.do("GET", "/v1/groups/half", "", "Authorization", "Bearer "+operatorsToken)
		var g map[string]any
		_ = json.Unmarshal([]byte(answer), &g) // no group yet is no total
		n, _ := g["total"].(float64)
		return n
	}
	submit := func(args ...string) *exec.Cmd {
		return exec.Command("bulkworker", append(args, "submit", "--server", p.url, "--token", operatorsToken, "--tenant", "acme", "--type", "webhook",
			"--id", "half", "--start", "sealed", "-")...)
	}
	const jobs = 7000
	lines := strings.Repeat("{\"payload\":{}}\n", jobs)

	killed := submit()
	stdin, err := killed.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(stdin, lines[:len(lines)-100]); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := total(); n < 5000 {
			return fmt.Errorf("%v jobs are in", n)
		}
		return nil
	})
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // killed
	if n := total(); n >= jobs {
		t.Fatalf("%v jobs are in already", n)
	}

	again := submit()
	again.Stdin = strings.NewReader(lines)
	if out, err := again.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "half\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := total(); n != jobs {
		t.Errorf("%v jobs are in; want %d", n, jobs)
	}
}
