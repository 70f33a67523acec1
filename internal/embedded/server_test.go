package embedded

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/internal/redisurl"
)

func TestStart_ConfiguresAServerThatCloseStops(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	s, _ := start(t, dir)
	for path, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, s.engine.socket: 0o700 | os.ModeSocket, filepath.Join(dir, "redis.log"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	c := client(t, s)
	for name, want := range map[string]string{
		"port": "0", "appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "save": "", "aof-load-truncated": "yes", "dir": dir,
	} {
		if got, err := c.ConfigGet(t.Context(), name).Result(); err != nil || got[name] != want {
			t.Errorf("%s is %q, %v, want %q", name, got[name], err, want)
		}
	}
	if pgid, err := syscall.Getpgid(pidOf(t, dir)); err != nil || pgid == syscall.Getpgrp() {
		t.Errorf("the server is in our process group (%d, %v): a Ctrl-C would end it", pgid, err)
	}
	opened, err := redisurl.Open(s.URL(), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	if err := redisurl.CheckServer(t.Context(), opened); err != nil {
		t.Fatal(err)
	}
	if err := opened.Set(t.Context(), "k", "kept", 0).Err(); err != nil {
		t.Fatal(err)
	}

	closeServer(t, s)
	closeServer(t, s) // again: the same answer
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	ends(t, dir, "the server runs after Close")
	again, _ := start(t, dir)
	if got, err := client(t, again).Get(t.Context(), "k").Result(); err != nil || got != "kept" {
		t.Fatalf("after a restart: %q, %v", got, err)
	}
}

func TestServer_RestartsWhenKilled(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	s, out := start(t, dir)
	for i := range 3 {
		id := runID(t, s)
		if err := client(t, s).Incr(t.Context(), "n").Err(); err != nil {
			t.Fatal(err)
		}
		killServer(t, dir)
		eventually(t, func() error {
			n, err := client(t, s).Get(t.Context(), "n").Int()
			if err == nil && n != i+1 {
				t.Fatalf("n is %d, want %d", n, i+1)
			}
			return err
		})
		if runID(t, s) == id {
			t.Fatal("it is the same server")
		}
	}
	for _, want := range []string{`msg="the store died; starting it again"`, "signal=killed", "in=5ms", "in=10ms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, out)
		}
	}
}

func TestClose_TheLastProgramStopsTheServer(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	first, _ := start(t, dir)
	second, _ := start(t, filepath.Join(dir, "..", "data")) // written differently
	third := program(t, dir)
	third.says("ready")
	id := runID(t, first)
	if first.engine.socket != second.engine.socket {
		t.Fatalf("%s and %s", first.engine.socket, second.engine.socket)
	}

	closeServer(t, first)
	if runID(t, second) != id {
		t.Fatal("another server after the first program has left")
	}
	killServer(t, dir) // another program supervises it now
	if next := runID(t, second); next == id {
		t.Fatal("the same server after it was killed")
	}
	closeServer(t, second)
	if !running(t, dir) {
		t.Fatal("the server has stopped while a program uses it")
	}
	third.leave()
	ends(t, dir, "the server runs after the last program has left")
}

func TestStart_AdoptsAnOrphanedServer(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	h := program(t, dir)
	h.says("ready")
	pid := pidOf(t, dir)
	h.kill()
	if !running(t, dir) {
		t.Fatal("the server died with its supervisor")
	}
	s, out := start(t, dir)
	if got := pidOf(t, dir); got != pid {
		t.Fatalf("process %d became %d", pid, got)
	}
	if !strings.Contains(out.String(), "took over a running store") {
		t.Errorf("not logged:\n%s", out)
	}
	id := runID(t, s)
	killServer(t, dir) // not our child, so its end is seen by its lock
	eventually(t, func() error { return client(t, s).Ping(t.Context()).Err() })
	if runID(t, s) == id {
		t.Fatal("the same server after it was killed")
	}
	closeServer(t, s)
	ends(t, dir, "the server runs after Close")
}

func TestServer_IsSupervisedByAnotherProgramAfterAKill(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	h := program(t, dir)
	h.says("ready")
	s, _ := start(t, dir)
	text, err := os.ReadFile(filepath.Join(dir, "supervisor.lock"))
	if want := strconv.Itoa(h.cmd.Process.Pid); err != nil || !strings.HasPrefix(string(text), want+" ") {
		t.Fatalf("the lock names %q, %v, want %s", text, err, want)
	}
	h.kill()
	killServer(t, dir)
	eventually(t, func() error { return client(t, s).Ping(t.Context()).Err() })
	closeServer(t, s)
	ends(t, dir, "the server runs after the last living program has left")
}

// TestStart_ManyProgramsLoseNoWrite: programs that start and leave at random lose no write. So two servers never had one file, and no
// server was stopped while a program used it.
func TestStart_ManyProgramsLoseNoWrite(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	const programs, rounds = 4, 5
	var g errgroup.Group
	for range programs {
		g.Go(func() error {
			for range rounds {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				s, err := Start(ctx, Options{Dir: dir, Log: quiet(), times: &quick})
				cancel()
				if err != nil {
					return err
				}
				c := newClient(s)
				err = c.Incr(context.Background(), "n").Err()
				_ = c.Close()
				if closeErr := s.Close(); err != nil || closeErr != nil {
					return errors.Join(err, closeErr)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	ends(t, dir, "the server runs after all have left")
	s, _ := start(t, dir)
	if n, err := client(t, s).Get(t.Context(), "n").Int(); err != nil || n != programs*rounds {
		t.Fatalf("counted %d, %v, want %d", n, err, programs*rounds)
	}
}

func TestStart_NamesTheMissingBinary(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	_, err := Start(t.Context(), Options{Dir: dir, Log: quiet(), Binary: "no-such-server"})
	if !errors.Is(err, ErrNoBinary) || !strings.Contains(err.Error(), "apt-get install redis-server") || !strings.Contains(err.Error(), "brew install redis") {
		t.Fatalf("got %v", err)
	}
	start(t, dir) // nothing is left locked
}

func TestStart_NeedsNoBinaryToShare(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	first, _ := start(t, dir)
	second, err := Start(t.Context(), Options{Dir: dir, Log: quiet(), Binary: "no-such-server", times: &quick})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	if runID(t, first) != runID(t, second) {
		t.Fatal("two servers")
	}
}

func TestStart_RefusesDamagedFiles(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		damage func(t *testing.T, path string, text []byte) []byte
		want   string // of the error; empty: it starts with what is left
	}{
		{"a tail cut off in mid-command", func(_ *testing.T, _ string, text []byte) []byte { return text[:len(text)-5] }, ""},
		{"rubbish in the middle", func(_ *testing.T, _ string, text []byte) []byte {
			return append([]byte("*1\r\n!rubbish\r\n"), text...)
		}, "redis-check-aof --fix"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := storeDir(t)
			s, _ := start(t, dir)
			for _, k := range []string{"first", "second"} {
				if err := client(t, s).Set(t.Context(), k, "v", 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			closeServer(t, s)
			paths, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
			if err != nil || len(paths) != 1 {
				t.Fatalf("%v, %v", paths, err)
			}
			text, err := os.ReadFile(paths[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(paths[0], row.damage(t, paths[0], text), 0o600); err != nil {
				t.Fatal(err)
			}

			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			again, err := Start(ctx, Options{Dir: dir, Log: quiet(), times: &quick})
			if row.want != "" {
				if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "Bad file format") {
					t.Fatalf("got %v, want %q and what Redis said", err, row.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = again.Close() }()
			if n, err := client(t, again).Exists(t.Context(), "first", "second").Result(); err != nil || n != 1 {
				t.Fatalf("%d keys are left, %v, want the first", n, err)
			}
		})
	}
}

// A crash cuts the file off within a transaction. After the next crash, later writes are there, and nothing of the torn transaction is.
func TestStart_RepairsATornTransaction(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	s, _ := start(t, dir)
	c := client(t, s)
	if err := c.Eval(t.Context(), "for i = 1, 3 do redis.call('SET', 'torn' .. i, 'v') end return 1", nil).Err(); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)
	path := filepath.Join(dir, "appendonlydir", "appendonly.aof.1.incr.aof")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), "torn3")
	if at < 0 {
		t.Fatalf("the file is %q", text)
	}
	if err := os.WriteFile(path, text[:at+2], 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ = start(t, dir)
	eventually(t, func() error {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return errors.New("the file is not written anew")
		}
		return nil
	})
	if err := client(t, s).Eval(t.Context(), "for i = 1, 2 do redis.call('SET', 'whole' .. i, 'v') end return 1", nil).Err(); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)
	s, _ = start(t, dir)
	if n, err := client(t, s).Exists(t.Context(), "torn1", "torn2", "torn3").Result(); err != nil || n != 0 {
		t.Errorf("%d keys of half a transaction, %v", n, err)
	}
	if n, err := client(t, s).Exists(t.Context(), "whole1", "whole2").Result(); err != nil || n != 2 {
		t.Errorf("%d keys of the transaction after it, %v, want 2", n, err)
	}
	closeServer(t, s)
}

func TestStart_IsBoundedWhileAFileLoads(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	s, _ := start(t, dir)
	if err := client(t, s).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	// A base file, which Redis loads key by key with the pause that the next start asks for.
	if err := client(t, s).BgRewriteAOF(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		info, err := client(t, s).Info(t.Context(), "persistence").Result()
		if err == nil && (!strings.Contains(info, "aof_rewrite_in_progress:0") || !strings.Contains(info, "aof_rewrite_scheduled:0")) {
			err = errors.New("still rewriting: " + info)
		}
		return err
	})
	closeServer(t, s)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	brief := quick
	brief.ask = 50 * time.Millisecond // it reads no command while it pauses; a signal ends it
	_, err := Start(ctx, Options{Dir: dir, Log: quiet(), times: &brief, extra: []string{"--key-load-delay", "3000000", "--loading-process-events-interval-bytes", "1024"}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	ends(t, dir, "a server is left behind")
	again, _ := start(t, dir)
	if got, err := client(t, again).Get(t.Context(), "k").Result(); err != nil || got != "v" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestStart_IgnoresAStalePidFile(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bystander.Wait() }()
	defer func() { _ = bystander.Process.Kill() }()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "redis.pid"), []byte(strconv.Itoa(bystander.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "redis.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := start(t, dir)
	closeServer(t, s)
	var status syscall.WaitStatus
	if pid, err := syscall.Wait4(bystander.Process.Pid, &status, syscall.WNOHANG, nil); pid != 0 || err != nil {
		t.Fatalf("the process of a stale pid file has ended: %d, %v, %v", pid, status, err)
	}
}

func TestServer_RestoresALostSocket(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	s, _ := start(t, dir)
	if err := client(t, s).Set(t.Context(), "k", "kept", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.engine.socket); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		got, err := client(t, s).Get(t.Context(), "k").Result()
		if err == nil && got != "kept" {
			t.Fatalf("k is %q", got)
		}
		return err
	})
}

func TestServer_KillsAHaltedServer(t *testing.T) {
	t.Parallel()
	dir := storeDir(t)
	brief := quick
	brief.ask, brief.tell = 50*time.Millisecond, 50*time.Millisecond
	s, err := Start(t.Context(), Options{Dir: dir, Log: quiet(), times: &brief})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pidOf(t, dir), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)
	ends(t, dir, "it still runs")
}
