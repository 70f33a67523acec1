package main

import (
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
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

const operatorsToken = "operators-token-0123456789"

// startForClients starts a bulk worker that requires a token, and posts jobs to a receiver that responds with a job's
// payload, and with the status in it if there is one.
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
func TestCommands_AgainstRunningWorker(t *testing.T) {
	short.Skip(t, "runs the built programs")
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

// submit is killed in the middle of its input; the same command again adds the rest, and no job twice.
func TestSubmit_ContinuesAfterKill(t *testing.T) {
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

// The limits of a type that no process runs are set with a note, since the name may be mistyped. They apply to workers that lease such jobs
// over HTTP, which the processes do not list.
func TestLimits_NoteUnknownType(t *testing.T) {
	p := startForClients(t)
	run := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		cmd := newRoot(nil)
		cmd.SetOut(io.Discard)
		cmd.SetErr(&out)
		cmd.SetArgs(append([]string{"limits", "--server", p.url, "--token", operatorsToken}, args...))
		if err := cmd.Execute(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return out.String()
	}
	eventually(t, func() error {
		if note := run("--processor", "webhook", "--rate", "100"); note != "" {
			return errors.New(note) // the process has not registered yet
		}
		return nil
	})
	note := run("--processor", "nosuch", "--rate", "100")
	for _, part := range []string{`no process runs jobs of type "nosuch"`, "workers that lease such jobs over HTTP", "Types that processes run: webhook", "--processor nosuch --rate configured"} {
		contains(t, note, part)
	}
	if note := run("--processor", "nosuch", "--rate", configured); note != "" {
		t.Error(note)
	}
}

// An interrupted submit or watch prints the command that continues; the group's jobs run meanwhile.
func TestInterrupt_NamesNextCommand(t *testing.T) {
	short.Skip(t, "waits for the clock")
	p := startForClients(t)
	file := filepath.Join(t.TempDir(), "jobs.ndjson")
	line := `{"payload":"` + strings.Repeat("x", 2000) + "\",\"run_at\":\"2100-01-01T00:00:00Z\"}\n"
	if err := os.WriteFile(file, []byte(strings.Repeat(line, 60_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	interrupt := func(want string, ready func(stderr io.Reader), args ...string) {
		t.Helper()
		cmd := exec.Command("bulkworker", append(args, "--server", p.url, "--token", operatorsToken)...)
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ready(stderr)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(stderr)
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its code is what counts
		if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.HasSuffix(string(said), want) {
			t.Errorf("%v: exit code %d, %q", args, code, said)
		}
	}
	someIn := func(io.Reader) {
		eventually(t, func() error {
			if _, answer := p.do("GET", "/v1/groups/long", "", "Authorization", "Bearer "+operatorsToken); !strings.Contains(answer, `"total":`) || strings.Contains(answer, `"total":0,`) {
				return fmt.Errorf("no job is in: %s", answer)
			}
			return nil
		})
	}
	firstLine := func(stderr io.Reader) {
		if _, err := io.ReadFull(stderr, make([]byte, len("long CREATED"))); err != nil {
			t.Fatal(err)
		}
	}
	interrupt("the same command with --id long continues from there\nbulkworker: interrupted\n", someIn,
		"submit", "--tenant", "acme", "--type", "webhook", "--id", "long", file)
	interrupt("group long goes on; bulkworker watch long shows it again\nbulkworker: interrupted\n", firstLine, "watch", "long")
}

// docs/bulk-client.md has every command and every flag.
func TestClientCommands_AreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/bulk-client.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []*cobra.Command
	for _, cmd := range clientCommands() {
		if !strings.Contains(string(doc), "`"+cmd.Name()) {
			t.Errorf("the command %s is missing", cmd.Name())
		}
		if all = append(all, cmd.Commands()...); !cmd.HasSubCommands() {
			all = append(all, cmd)
		}
	}
	for _, cmd := range all {
		if !strings.Contains(string(doc), cmd.Name()) {
			t.Errorf("the command %s is missing", cmd.CommandPath())
		}
		flags := regexp.MustCompile("--[a-z-]+").FindAllString(cmd.Flags().FlagUsages(), -1)
		if len(flags) < 3 {
			t.Errorf("%s has only %v", cmd.Name(), flags)
		}
		for _, flag := range flags {
			if !strings.Contains(string(doc), "`"+flag) {
				t.Errorf("%s %s is missing", cmd.Name(), flag)
			}
		}
	}
}
