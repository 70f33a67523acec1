package suite

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait. Only a failing test takes that long.
const patience = time.Minute

const root = "../.." // of the repository, for tests in test/<package>

var built sync.Map // name: func() error

// Program returns the path of a program of this repository, which it builds once.
// It keeps them in bin/integrations, so that an unchanged one is not linked again.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin/integrations", name))
	if err != nil {
		t.Fatal(err)
	}
	build, _ := built.LoadOrStore(name, sync.OnceValue(func() error {
		cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, ".")
		cmd.Dir = filepath.Join(root, "cmd", name)
		cmd.Env = append(os.Environ(), "GOGC=400") // as in the Makefile
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		return nil
	}))
	if err := build.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Output runs a program to its end and returns what it prints.
func Output(t testing.TB, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	var out, faults bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &faults
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, faults.String())
	}
	return out.String()
}

// Process is a running program and its log.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// Write adds to the log.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// Log returns what the program has written.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Launch starts a program that is killed at the end of the test.
func Launch(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	p := &Process{cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a proxy's workers end with it
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // it is killed
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the log of %s:\n%s", filepath.Base(program), last(p.Log(), 4000))
		}
	})
	return p
}

// Kill ends the program.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// Listens waits until an address accepts connections.
func (p *Process) Listens(t testing.TB, address string) {
	t.Helper()
	Eventually(t, "the program listens at "+address, func() bool {
		select {
		case <-p.ended:
			t.Fatalf("the program ended:\n%s", p.Log())
		default:
		}
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

// Eventually waits until a condition holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// Dir returns a temporary directory that every user may enter: proxies drop their privileges.
func Dir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	return dir
}

// WriteFile writes a file into a directory and returns its path.
func WriteFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Join writes the contents of files, one after another, into a file of a directory.
func Join(t testing.TB, dir, name string, files ...string) {
	t.Helper()
	var all []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	WriteFile(t, dir, name, string(all))
}
