package promscore

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/anteroom/anteroom/internal/freeport"
	"github.com/anteroom/anteroom/internal/short"
)

func TestMain(m *testing.M) {
	// Kept connections of the client and of the test's servers end a moment later than the test.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// prometheus starts a real server that scrapes the target every second, and returns its address.
func prometheus(t *testing.T, target string) string {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("prometheus is not installed")
		}
		t.Skip("prometheus is not installed")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs: [{job_name: shop, static_configs: [{targets: [%q]}]}]\n", target)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := freeport.Address(t)
	var log bytes.Buffer
	cmd := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return "http://" + addr
}

func score(t *testing.T, address, query string) (float64, error) {
	t.Helper()
	q, err := New(address, query)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return q.Score(ctx)
}

func TestScore_OfARealPrometheus(t *testing.T) {
	short.Skip(t, "starts a Prometheus")
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "shop_queue{cpu=\"0\"} 3\nshop_queue{cpu=\"1\"} 1\n")
	}))
	defer target.Close()
	address := prometheus(t, target.Listener.Addr().String())
	const query = "clamp_max(1 / avg(shop_queue), 1)"
	// If a busy machine is late with a scrape, there are no results until the next one.
	eventually := func(query string, ok func(float64, error) bool) {
		t.Helper()
		for until := time.Now().Add(time.Minute); ; {
			got, err := score(t, address, query)
			if ok(got, err) {
				return
			}
			if time.Now().After(until) {
				t.Fatalf("%s: %v, %v", query, got, err)
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-t.Context().Done():
			}
		}
	}
	half := func(got float64, err error) bool { return err == nil && got == 0.5 }
	eventually(query, half)
	eventually("scalar("+query+")", half)
	for _, row := range []struct{ query, want string }{
		{"shop_queue", "has 2 results"},
		{"nothing_of_that_name", "has 0 results"},
		{"shop_queue[1m]", "returns a matrix"},
		{`"0.5"`, "returns a string"},
		{"((", "parse error"},
	} {
		eventually(row.query, func(_ float64, err error) bool { return err != nil && strings.Contains(err.Error(), row.want) })
	}
}

func TestScore_HidesThePassword(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		got = user + ":" + password
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	address := strings.Replace(server.URL, "://", "://ann:hidden-word@", 1)
	away := "http://ann:hidden-word@127.0.0.1:1/"
	for _, a := range []string{address, away} {
		if _, err := score(t, a, "up"); err == nil || strings.Contains(err.Error(), "hidden-word") {
			t.Errorf("%v", err)
		}
	}
	if got != "ann:hidden-word" {
		t.Errorf("the server was told %q", got)
	}
	if _, err := New("http://ann:hidden-word@%zz", "up"); err == nil || strings.Contains(err.Error(), "hidden-word") {
		t.Errorf("%v", err)
	}
}

func TestScore_GivesUpASilentServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	q, err := New("http://"+ln.Addr().String(), "up")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := q.Score(ctx); err == nil || ctx.Err() == nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}
