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

// startLogged starts a gateway and reads its log up to the line with its last socket. The returned reader has the rest.
func startLogged(t *testing.T, site string) (*gateway, *os.File) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(gatewayBinary, "--origin", site, "--rate", "1000", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	cmd.Dir = tempDir(t)
	cmd.Env, cmd.Stderr = append(os.Environ(), ownStoreEnv(tempDir(t))...), in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), out.Close() })
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
	g.awaitStore()
	return g, out
}

// endsUnheard ends a gateway whose log is not read: the shutdown does not wait for a reader.
func (g *gateway) endsUnheard() {
	g.t.Helper()
	if err := g.cmd.Process.Signal(sigterm); err != nil {
		g.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			g.t.Error(err)
		}
	case <-time.After(patience):
		g.t.Error("it does not end while nobody reads its log")
	}
}

// dropped waits until lines of the log are counted as lost.
func (g *gateway) dropped() {
	g.t.Helper()
	until(g.t, "what is lost is counted", func() bool {
		metrics := adminOf(g.t, g).ask(http.MethodGet, "/metrics", "").body
		return regexp.MustCompile(`(?m)^anteroom_log_lines_dropped_total [1-9]`).MatchString(metrics)
	})
}

// No program reads the log. Requests are served as before, log lines are dropped and counted, and the shutdown is in time.
func TestLog_WithoutReader(t *testing.T) {
	t.Parallel()
	g, _ := startLogged(t, newOrigin(t, nil).URL)
	w := dialWire(t, g)
	long := strings.Repeat("x", 2048)
	for i := range 1500 { // 9 MB, because fields are cut at 2 KiB: twice the buffer of the log
		_ = w.SetDeadline(time.Now().Add(patience))
		if code, _ := w.get("/"+long, "User-Agent: "+long, "Referer: "+long, "Accept: */*"); code != http.StatusOK {
			t.Fatalf("request %d: %d", i, code)
		}
	}
	g.dropped()
	g.endsUnheard()
}

// The reader of the log ends; the gateway continues.
func TestLog_ReaderEnds(t *testing.T) {
	t.Parallel()
	g, out := startLogged(t, newOrigin(t, nil).URL)
	_ = out.Close()
	w := dialWire(t, g)
	if code, _ := w.get("/missing", "Accept: */*"); code != http.StatusOK {
		t.Error(code)
	}
	g.dropped()
	if code, _ := w.get("/missing", "Accept: */*"); code != http.StatusOK {
		t.Error(code)
	}
	g.endsUnheard()
}

// The access log in the combined format, with networks in the place of addresses.
func TestLog_CombinedFormat(t *testing.T) {
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
