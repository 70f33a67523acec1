package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Nobody reads the log: requests go on as ever, lines are dropped and counted, and the end comes in time.
func TestNobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(gatewayBinary, "--origin", site.URL, "--rate", "1000", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	cmd.Dir = tempDir(t)
	cmd.Env, cmd.Stderr = append(os.Environ(), "ANTEROOM_STORE__DIR="+tempDir(t)), in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	_ = in.Close()
	g := &gateway{t: t, process: &process{cmd: cmd}}
	said := bufio.NewReader(out)
	listening := regexp.MustCompile(`"msg":"(admin )?listening","addr":"([^"]+)"`)
	for g.addr == "" || g.admin == "" {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if m := listening.FindStringSubmatch(line); m != nil && m[1] != "" {
			g.admin = m[2]
		} else if m != nil {
			g.addr = m[2]
		}
	}
	w := dialWire(t, g)
	agent := "User-Agent: " + strings.Repeat("x", 8000)
	for i := range 1000 { // 8 MB, twice what waits for a reader
		if code, _ := w.get("/missing", agent, "Accept: */*"); code != http.StatusOK {
			t.Fatalf("request %d: %d", i, code)
		}
	}
	until(t, "what is lost is counted", func() bool {
		metrics := adminOf(t, g).ask(http.MethodGet, "/metrics", "").body
		return regexp.MustCompile(`(?m)^anteroom_log_lines_dropped_total [1-9]`).MatchString(metrics)
	})
	if err := cmd.Process.Signal(sigterm); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it does not end while nobody reads its log")
	}
}

// The access log in the combined format, with networks in the place of addresses.
func TestCombinedAccessLog(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	g := start(t, setup{origin: site.URL, rooms: []string{"{id: sale, enabled: false}"}, more: "log: {access_format: combined, access_ip: prefix}\n"})
	w := dialWire(t, g)
	w.get("/a?token=secret-value&b=1", "X-Forwarded-For: 198.51.100.7", "User-Agent: me \"and\" \\", "Referer: http://x.test/?session=hidden-value")
	w.send("GET / HTTP/1.1\r\nBad Header: 1\r\n\r\n")
	w.answer()
	for _, want := range []string{
		`(?m)^198\.51\.100\.0/24 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\] "GET /a\?token=\*\*\*&b=1 HTTP/1\.1" 200 5 "http://x\.test/\?session=\*\*\*" "me \\x22and\\x22 \\x5c"$`,
		`(?m)^127\.0\.0\.0/24 - - \[[^]]+\] "-" 400 \d+ "-" "-"$`,
	} {
		until(t, fmt.Sprintf("the log has %s", want), func() bool { return regexp.MustCompile(want).MatchString(g.text()) })
	}
}
