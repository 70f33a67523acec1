package chart

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// patience bounds every wait. A test that passes never waits for it.
const patience = time.Minute

// TestTrialRuns starts the trial's processes on this machine, with the commands, files and variables of their containers. It
// probes readiness as the kubelet would, changes a Secret while the program runs, and ends each with SIGTERM and exit status 0.
func TestTrialRuns(t *testing.T) {
	t.Parallel()
	r := render(t, override(t, "trial", `bulkworker: {enabled: true}`))
	socket, password := startValkey(t, r)

	for _, d := range of[*apps.Deployment](r) {
		p := pod{d.Name, d.Spec.Template.Labels, d.Spec.Template.Spec, nil}
		m := mount(t, r, p)
		m.useStore(t, socket, password)
		if out, err := m.command(t, append(m.args("check-config"), "--store")...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", d.Name, err, out)
		}
		runProgram(t, m)
	}
}

// useStore replaces the bundled Valkey's address with a socket of this machine.
func (m mounted) useStore(t *testing.T, socket, password string) {
	t.Helper()
	here := 0
	for i, e := range m.env {
		if strings.HasPrefix(e, "ANTEROOM_STORE__URL=") {
			if !strings.Contains(e, ":"+password+"@"+releaseName+"-anteroom-valkey:6379") {
				t.Fatalf("%s has %s", m.container.Name, e)
			}
			m.env[i] = "ANTEROOM_STORE__URL=unix://:" + password + "@" + socket
			here++
		}
	}
	if here != 1 {
		t.Fatalf("%s has %d store URLs", m.container.Name, here)
	}
}

// startValkey starts Valkey as the StatefulSet would, and returns its socket and password.
func startValkey(t *testing.T, r *release) (socket, password string) {
	t.Helper()
	server := findServer(t)
	set := of[*apps.StatefulSet](r)[0]
	c := set.Spec.Template.Spec.Containers[0]
	dir, err := os.MkdirTemp("", "vk") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")

	config := configMap(t, r, "valkey.conf")
	for from, to := range map[string]string{"port 6379": "port 0\nunixsocket " + socket, "dir /data": "dir " + dir} {
		if !strings.Contains(config, from) {
			t.Fatalf("valkey.conf has no %s:\n%s", from, config)
		}
		config = strings.Replace(config, from, to, 1)
	}
	write(t, filepath.Join(dir, "etc", "valkey.conf"), config)
	tools := filepath.Join(dir, "bin")
	write(t, filepath.Join(tools, "valkey-cli"), "#!/bin/sh\nexec "+strings.Replace(server, "-server", "-cli", 1)+" -s "+socket+` "$@"`)
	if err := os.Chmod(filepath.Join(tools, "valkey-cli"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(server, filepath.Join(tools, "valkey-server")); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + tools + ":/usr/bin:/bin"}
	for _, e := range c.Env {
		password = secretValue(t, r, e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key)
		env = append(env, e.Name+"="+password)
	}

	// The server hides its arguments later; the shell does not.
	for line := range strings.Lines(c.Command[2]) {
		if strings.Contains(line, "PASSWORD") && !strings.HasPrefix(line, "requirepass ") {
			t.Errorf("the password is in the arguments of a command: %s", line)
		}
	}
	script := strings.ReplaceAll(c.Command[2], "/etc/valkey", filepath.Join(dir, "etc"))
	cmd := exec.Command(c.Command[0], c.Command[1], script)
	cmd.Env, cmd.Stderr = env, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil { // exec replaced the shell with the server, so the server gets the signal
			t.Errorf("valkey ended with %v", err)
		}
	})
	ready := c.ReadinessProbe.Exec.Command
	waitFor(t, "valkey's readiness", func() bool {
		if len(ended) > 0 {
			t.Fatal("valkey has ended")
		}
		probe := exec.Command(ready[0], ready[1:]...)
		probe.Env = env
		return probe.Run() == nil
	})
	without := exec.Command(ready[0], ready[1:]...)
	without.Env = env[:1]
	if without.Run() == nil {
		t.Error("valkey answers without its password")
	}
	return socket, password
}

func findServer(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"valkey-server", "redis-server"} {
		if file, err := exec.LookPath(name); err == nil {
			return file
		}
	}
	t.Fatal("neither valkey-server nor redis-server is here; tools/need.sh redis-server installs one")
	return ""
}

// sockets has the port of a container for each log line of a socket.
var sockets = map[string]string{"listening": "http", "admin listening": "admin", "check listening": "check"}

// running is a program that runs as its container would, on ports of this machine.
type running struct {
	cmd       *exec.Cmd
	addresses map[string]string // by the name of the container's port
	reloaded  chan struct{}     // receives a value when the program has read its configuration again
	ended     chan struct{}
}

// start starts a program with its container's arguments, and waits until it listens.
func start(t *testing.T, m mounted) *running {
	t.Helper()
	args := append(m.args("serve"), "--listen", "127.0.0.1:0")
	if m.container.Name == "gateway" {
		args = append(args, "--admin-listen", "127.0.0.1:0")
	}
	p := &running{m.command(t, args...), make(map[string]string), make(chan struct{}, 8), make(chan struct{})}
	if slices.ContainsFunc(m.container.Ports, func(port core.ContainerPort) bool { return port.Name == "check" }) {
		p.cmd.Env = append(p.cmd.Env, "ANTEROOM_CHECK__LISTEN=127.0.0.1:0")
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	addresses := make(chan [2]string, 8)
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			var line struct{ Msg, Addr string }
			if json.Unmarshal(lines.Bytes(), &line) != nil {
				continue
			}
			if port := sockets[line.Msg]; port != "" {
				addresses <- [2]string{port, line.Addr}
			}
			if line.Msg == "configuration reloaded" {
				p.reloaded <- struct{}{}
			}
		}
	}()
	for range m.container.Ports {
		select {
		case a := <-addresses:
			p.addresses[a[0]] = a[1]
		case <-p.ended:
			t.Fatalf("%s ended: %v", m.container.Name, p.cmd.Wait())
		case <-time.After(patience):
			t.Fatalf("%s listens on %v only", m.container.Name, p.addresses)
		}
	}
	return p
}

// stop ends the program with SIGTERM, and checks its exit status.
func (p *running) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%s ended with %v", p.cmd.Path, err)
	}
}

// runProgram starts a program with its container's arguments, runs its probes, and ends it.
func runProgram(t *testing.T, m mounted) {
	t.Helper()
	p := start(t, m)
	for _, probe := range []*core.Probe{m.container.LivenessProbe, m.container.ReadinessProbe} {
		url := "http://" + p.addresses[probe.HTTPGet.Port.StrVal] + probe.HTTPGet.Path
		waitFor(t, url, func() bool {
			answer, err := http.Get(url)
			if err != nil {
				return false
			}
			_ = answer.Body.Close()
			return answer.StatusCode == http.StatusOK
		})
	}
	if m.container.Name == "gateway" { // the bulk worker of the trial has no secret file
		switchTo2(t, m.here("/etc/anteroom/secrets"))
		select {
		case <-p.reloaded:
		case <-p.ended:
			t.Fatal("the gateway ended when a Secret changed")
		case <-time.After(patience):
			t.Errorf("the gateway did not load a changed Secret within %s", patience)
		}
	}
	p.stop(t)
}

func waitFor(t *testing.T, what string, there func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !there(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %s", what, patience)
		}
	}
}
