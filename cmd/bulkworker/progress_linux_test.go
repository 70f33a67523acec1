package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/anteroom/anteroom/bulk/client"
	"github.com/anteroom/anteroom/internal/short"
)

// terminal opens a pseudo-terminal with so many columns; shown closes it and returns what was drawn on it.
func terminal(t *testing.T, columns int) (tty *os.File, shown func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal to be had: %v", err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	drawn := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(master) // ends with EIO when the last of the other side is closed
		_ = master.Close()
		drawn <- string(b)
	}()
	return tty, func() string {
		_ = tty.Close()
		select {
		case s := <-drawn:
			return s
		case <-time.After(patience):
			t.Fatal("the terminal is still open")
			return ""
		}
	}
}

func TestProgress_OnTerminal(t *testing.T) {
	t.Parallel()
	for _, columns := range []int{120, 80, 40, 5} {
		tty, shown := terminal(t, columns)
		s := newScreen(tty)
		u := newUploading(s, 1000, func(sent client.Uploaded) int64 { return sent.Bytes })
		u.chunk(client.Uploaded{Lines: 10, Bytes: 250, Accepted: 9})
		s.note("the line broke")
		u.chunk(client.Uploaded{Lines: 40, Bytes: 1000, Accepted: 40})
		u.end(client.Uploaded{Lines: 40, Bytes: 1000, Accepted: 40})
		f := &following{screen: s}
		for _, g := range life {
			f.group(g)
		}
		s.end()
		got := shown()
		for _, want := range []string{"the line broke\r\n", "40 jobs are in, 0 were there already, 0 lines were rejected\r\n",
			"g COMPLETED: 190 succeeded, 7 failed, 3 dead, 0 cancelled\r\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("%d columns: %q is missing in %q", columns, want, got)
			}
		}
		if columns >= 80 {
			for _, want := range []string{"25% |█████ ", "250 B/1.0 kB", "10 lines", "50/200, 12.35/s, 24s-40s left, failed 7, dead 3, congestion moderate", " 50% |"} {
				if !strings.Contains(got, want) {
					t.Errorf("%d columns: %q is missing in %q", columns, want, got)
				}
			}
		}
		for line := range strings.FieldsFuncSeq(strings.ReplaceAll(strings.ReplaceAll(got, "\033[0K", ""), "\033[2K", ""), func(r rune) bool { return r == '\r' || r == '\n' }) {
			if strings.Contains(line, "%") && len([]rune(line)) > max(columns, 12) {
				t.Errorf("%d columns: a bar of %d characters wraps: %q", columns, len([]rune(line)), line)
			}
		}
	}
}

func TestWatch_OnTerminal(t *testing.T) {
	short.Skip(t, "waits for the clock")
	p := startForClients(t)
	tty, shown := terminal(t, 100)
	cmd := exec.Command("bulkworker", "submit", "--server", p.url, "--token", operatorsToken, "--tenant", "acme", "--type", "webhook",
		"--id", "shown", "--rate", "10", "--watch", "-")
	cmd.Stdin, cmd.Stderr = strings.NewReader(strings.Repeat("{\"payload\":{}}\n", 40)), tty
	out, err := cmd.Output()
	if err != nil || string(out) != "shown\n" {
		t.Errorf("%v, %q", err, out)
	}
	got := shown()
	for _, want := range []string{"% |", "/40, ", " left, failed 0, dead 0, congestion none", "shown COMPLETED: 40 succeeded, 0 failed, 0 dead, 0 cancelled\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
}
