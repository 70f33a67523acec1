package redistest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { MainNoLeaks(m) }

func TestClient_PrefixesKeepTestsApart(t *testing.T) {
	t.Parallel()
	a, b := Prefix(t), Prefix(t)
	if a == b {
		t.Fatalf("two prefixes are %q", a)
	}
	c := Client(t)
	if err := c.Set(t.Context(), a+":k", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := Client(t).Get(t.Context(), a+":k").Result(); err != nil || got != "1" {
		t.Fatalf("a second client of the shared server reads %q, %v", got, err)
	}
}

func TestCluster_ServesEverySlot(t *testing.T) {
	t.Parallel()
	c, p := Cluster(t), Prefix(t)
	for _, tag := range []string{"{a}", "{b}", "{room:sale}", "{bulk:7}"} {
		if err := c.Set(t.Context(), p+tag, tag, 0).Err(); err != nil {
			t.Fatalf("%s: %v", tag, err)
		}
		if got := c.Get(t.Context(), p+tag).Val(); got != tag {
			t.Fatalf("%s reads %q", tag, got)
		}
	}
}

func TestServer_StopsDiesAndRestarts(t *testing.T) {
	t.Parallel()
	s := Server(t, "--appendonly", "yes", "--appendfsync", "always")
	c := s.Client()
	if err := c.Set(t.Context(), "k", "kept", 0).Err(); err != nil {
		t.Fatal(err)
	}

	s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Fatal("a stopped server answers")
	}
	s.Cont()
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Fatalf("after Cont: %v", err)
	}

	s.Kill()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a killed server answers")
	}
	socket, addr := s.Socket(), s.Addr()
	s.Restart()
	if s.Socket() != socket || s.Addr() != addr {
		t.Fatalf("moved from %s, %s to %s, %s", socket, addr, s.Socket(), s.Addr())
	}
	if got, err := s.Client().Get(t.Context(), "k").Result(); err != nil || got != "kept" {
		t.Fatalf("after Restart: %q, %v", got, err)
	}
}

func TestNewProcess_ShowsWhyTheServerDidNotStart(t *testing.T) {
	t.Parallel()
	_, err := newProcess("", []string{"--port", "0", "--no-such-setting", "1"})
	if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Fatalf("got %v; it must show what the server said", err)
	}
}

func TestServer_LeavesNothingBehind(t *testing.T) {
	t.Parallel()
	p, err := newProcess("", []string{"--port", "0"})
	if err != nil {
		t.Fatal(err)
	}
	p.remove()
	if _, err := os.Stat(filepath.Dir(p.socket)); !os.IsNotExist(err) {
		t.Fatalf("the directory is still there: %v", err)
	}
}

func TestSentinel_KnowsItsMaster(t *testing.T) {
	t.Parallel()
	master := Server(t)
	sentinel := Sentinel(t, "tickets", master)
	got, err := sentinel.Client().Do(t.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "tickets").StringSlice()
	if err != nil || strings.Join(got, ":") != master.Addr() {
		t.Fatalf("got %q, %v, want %s", got, err, master.Addr())
	}
}
