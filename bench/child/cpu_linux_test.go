package child

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		in     string
		parent int
		used   time.Duration
		ok     bool
	}{
		{"42 (nginx) S 7 42 42 0 -1 4194560 1 0 0 0 150 50 9 9 20 0 1 0 1", 7, 2 * time.Second, true},
		{"42 (a b) c) S 7 42 42 0 -1 4194560 1 0 0 0 1 0 9 9 20 0 1 0 1", 7, 10 * time.Millisecond, true},
		{"42 (nginx) S 7", 0, 0, false},
		{"", 0, 0, false},
		{"42 (x) S y 42 42 0 -1 4194560 1 0 0 0 150 50 9", 0, 0, false},
	} {
		parent, used, err := parseStat([]byte(tt.in))
		if parent != tt.parent && tt.ok || used != tt.used && tt.ok || (err == nil) != tt.ok {
			t.Errorf("%q: %d, %s, %v", tt.in, parent, used, err)
		}
	}
}

// What a grandchild uses is charged to the server: nginx works in workers, the gateway keeps its store as a child.
func TestCPUCountsDescendants(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "(while :; do :; done) & echo; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		used, err := CPU(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if used >= 100*time.Millisecond {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the grandchild's work is not seen: %s", used)
		}
	}
	if _, err := CPU(os.Getpid()); err != nil {
		t.Errorf("own process: %v", err)
	}
	if _, err := CPU(1 << 30); err == nil {
		t.Error("a process that does not exist has a time")
	}
}
