package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestServers_DieWithAKilledBinary runs this binary a second time, where it starts a server and hangs.
func TestServers_DieWithAKilledBinary(t *testing.T) {
	if os.Getenv("REDISTEST_HANG") != "" {
		fmt.Println("pid", Server(t).p.cmd.Process.Pid)
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // never comes
		return
	}
	t.Parallel()
	tmp, err := os.MkdirTemp("", "rt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "REDISTEST_HANG=1", "TMPDIR="+tmp)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close() }()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	text, _ := strings.CutPrefix(strings.TrimSpace(line), "pid ")
	pid, convErr := strconv.Atoi(text)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil || convErr != nil {
		t.Fatalf("%q, %v, %v", line, err, convErr)
	}

	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		// A process that nobody has reaped yet is dead as well.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("process %d outlives its test binary: %s", pid, stat)
		case <-tick.C:
		}
	}
}
