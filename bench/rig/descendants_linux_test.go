package rig

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// tick is the resolution of processor times in /proc.
const tick = 10 * time.Millisecond

// nginx serves from worker processes, and the gateway runs its store as a child.
func TestCPU_CountsDescendants(t *testing.T) {
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
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		used, err := CPU(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if used >= 100*time.Millisecond {
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("the processor time of the grandchild is not counted: %s", used)
		}
	}
	if _, err := CPU(os.Getpid()); err != nil {
		t.Errorf("this process: %v", err)
	}
	if _, err := CPU(1 << 30); err == nil {
		t.Error("a process that does not exist has a processor time")
	}
}
