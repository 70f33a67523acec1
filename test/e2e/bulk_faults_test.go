package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Workers are killed ten times. Every job runs and has one outcome; a job runs twice only because of a kill.
func TestBulkWorker_KilledTenTimes(t *testing.T) {
	t.Parallel()
	const kills, lease = 10, 4 * time.Second // long enough for a live worker on a busy machine to renew it
	n := sized(6000, 100_000)
	f := newFarm(t, fmt.Sprintf("rate: {global: %d}\nworker: {count: 12, lease: 4s}", sized(600, 3000)))
	f.to.answer = held(10 * time.Millisecond)
	pair := []*bulkWorker{f.worker(), f.worker()}
	pair[0].submit("acme", "g", n)
	killed := map[string]time.Time{}
	for k := range kills {
		f.to.reached(t, (k+1)*n/(kills+2))
		i := k % 2
		killed[pair[i].name] = pair[i].kill()
		pair[i] = f.worker()
	}
	if g := pair[0].completes("g"); g.Total != n || g.Succeeded != n {
		t.Errorf("%+v", g)
	}
	for job, o := range pair[1].results("g", n) {
		if o.Status != "succeeded" || o.Attempts != 1 {
			t.Errorf("job %s: %+v", job, o)
		}
	}
	again, slowest := 0, time.Duration(0)
	for job, of := range byJob(t, f.to.of("g"), n) {
		for i := 1; i < len(of); i++ {
			again++
			at, died := killed[of[i-1].worker]
			if !died || of[i].at.Before(at) {
				t.Errorf("job %s ran again although its worker was not killed: %+v", job, of)
				continue
			}
			slowest = max(slowest, of[i].at.Sub(at))
		}
	}
	t.Logf("%d of %d jobs ran again after %d kills, the last %s after its kill (lease %s)", again, n, kills, slowest, lease)
	// Each worker of a process may have had one running job, and one whose acknowledgement was not sent.
	if most := kills * 2 * 12; again > most {
		t.Errorf("%d jobs ran again, more than %d that the killed can have had in hand", again, most)
	}
}

// chunks submits a group in chunks, each of which is sent until it is answered, and seals it.
func chunks(t *testing.T, w *bulkWorker, group string, n, size int, between func(chunk int)) {
	t.Helper()
	stubborn := func(method, path, body string, h ...headers) answer {
		var a answer
		within(t, bulkPatience(), path, func() bool {
			var err error
			a, err = w.try(method, path, body, h...)
			return err == nil && a.code != http.StatusServiceUnavailable
		})
		return a
	}
	if a := stubborn(http.MethodPost, "/v1/groups", fmt.Sprintf(`{"id":%q,"tenant":"acme","type":"webhook"}`, group)); a.code > 201 {
		t.Fatal(a.body)
	}
	lines := strings.SplitAfter(jobLines(n), "\n")[:n]
	in := 0
	for c := 0; c*size < n; c++ {
		part := lines[c*size : min(n, (c+1)*size)]
		if between != nil {
			between(c)
		}
		got := into[bulkGroup](stubborn(http.MethodPost, "/v1/groups/"+group+"/jobs", strings.Join(part, ""), headers{"Idempotency-Key": "c" + itoa(c)}).want(http.StatusOK))
		if got.Accepted != len(part) || got.Duplicates != 0 || len(got.Rejected) != 0 {
			t.Errorf("chunk %d of %d lines: accepted %d, duplicates %d, rejected %v", c, len(part), got.Accepted, got.Duplicates, got.Rejected)
		}
		in += got.Accepted
	}
	if g := into[bulkGroup](stubborn(http.MethodPost, "/v1/groups/"+group+"/seal", "").want(http.StatusOK)); g.Total != in || in != n {
		t.Errorf("%d jobs were accepted of %d, the group has %d", in, n, g.Total)
	}
}

// few returns how many of n jobs ran more than once. It fails the test if more did than the workers could hold.
func few(t *testing.T, runs []jobRun, n, most int) {
	t.Helper()
	again := 0
	for _, of := range byJob(t, runs, n) {
		again += len(of) - 1
	}
	t.Logf("%d of %d jobs ran again", again, n)
	if again > most {
		t.Errorf("%d jobs ran again, at most %d were in hand", again, most)
	}
}

// Redis is killed and restarted while jobs are submitted and run. Work resumes by itself, and no job is lost.
func TestBulkStore_Killed(t *testing.T) {
	t.Parallel()
	const workers = 8
	n := sized(3000, 40_000)
	// With everysec a busy disk delays writes of acks that Redis has answered, and the kill loses them.
	redis := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	f := newFarmOn(t, redis, fmt.Sprintf("{url: %q, timeout: %s}", redis.URL(), slowStore),
		fmt.Sprintf("rate: {global: %d}\nworker: {count: %d, lease: 2s}", sized(800, 4000), workers))
	f.to.answer = held(5 * time.Millisecond)
	a, b := f.worker(), f.worker()
	chunks(t, a, "g", n, n/10, func(c int) {
		if c == 3 || c == 7 {
			f.to.reached(t, c*n/40)
			f.redis.Restart()
		}
	})
	f.to.reached(t, n/2)
	f.redis.Kill()
	f.redis.Restart()
	if g := b.completes("g"); g.Total != n || g.Succeeded != n {
		t.Errorf("%+v", g)
	}
	b.results("g", n)
	few(t, f.to.of("g"), n, 3*2*workers)
}

// alwaysFsync lets the embedded Redis of a directory write before it replies. With everysec it keeps what it has acknowledged in its own
// memory while the disk is busy, up to two seconds, and a kill would lose it.
func alwaysFsync(t *testing.T, dir string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, "redis.log"))
	if err != nil {
		t.Fatal(err)
	}
	const ready = "ready to accept connections at "
	at := bytes.LastIndex(log, []byte(ready))
	if at < 0 {
		t.Fatalf("redis.log has no socket: %s", log)
	}
	socket, _, _ := strings.Cut(string(log[at+len(ready):]), "\n")
	conn, err := net.Dial("unix", strings.TrimSpace(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reply := bufio.NewReader(conn)
	for range 2 { // the second reply comes after the file has what was kept back
		if _, err := fmt.Fprint(conn, "CONFIG SET appendfsync always\r\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := reply.ReadString('\n'); err != nil || line != "+OK\r\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

// With an embedded store, the worker is killed, then its Redis, then both at the same time. Work resumes without loss.
func TestBulkStore_EmbeddedKilled(t *testing.T) {
	t.Parallel()
	const n, workers, batch = 1500, 8, 4
	dir := tempDir(t)
	f := newFarmOn(t, nil, fmt.Sprintf("{dir: %q}", dir), fmt.Sprintf("rate: {global: 500}\nworker: {count: %d, batch: %d, lease: 3s}", workers, batch))
	f.to.answer = held(10 * time.Millisecond)
	killStore := func() {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, "redis.pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || pid < 2 {
			t.Fatalf("redis.pid: %q", text)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	w := f.worker()
	w.submit("acme", "g", n)
	f.to.reached(t, n/6)
	w.kill()
	w = f.worker()
	f.to.reached(t, n/3)
	alwaysFsync(t, dir)
	killStore()
	f.to.reached(t, n/2)
	alwaysFsync(t, dir)
	killStore()
	w.kill()
	w = f.worker()
	if g := w.completes("g"); g.Total != n || g.Succeeded != n {
		t.Errorf("%+v", g)
	}
	w.results("g", n)
	few(t, f.to.of("g"), n, 2*(workers+2*batch)) // of each of two workers: its running jobs, and those whose acks it has not sent
}

// Redis hangs for longer than a lease. No lease ends because of that, and work resumes.
func TestBulkStore_Hangs(t *testing.T) {
	t.Parallel()
	const workers = 8
	n := sized(2000, 20_000)
	redis := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "everysec")
	f := newFarmOn(t, redis, fmt.Sprintf("{url: %q, timeout: 1s}", redis.URL()), fmt.Sprintf("rate: {global: 500}\nworker: {count: %d, lease: 2s}", workers))
	f.to.answer = held(50 * time.Millisecond)
	a, b := f.worker(), f.worker()
	a.submit("acme", "g", n)
	f.to.reached(t, n/4)
	f.redis.Stop()
	<-time.After(4 * time.Second) // twice the lease
	stopped := f.to.count()
	f.redis.Cont()
	f.to.reached(t, stopped+1)
	if g := b.completes("g"); g.Total != n || g.Succeeded != n {
		t.Errorf("%+v", g)
	}
	a.results("g", n)
	few(t, f.to.of("g"), n, 2*workers)
}

// The connection to Redis drops replies, truncates them and resets while chunks are submitted. Each chunk is sent again until it has a
// response, and the counts are exact.
func TestBulkStore_RepliesLost(t *testing.T) {
	t.Parallel()
	n := sized(2000, 40_000)
	redis := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "everysec")
	proxy := redistest.Proxy(t, redis.Socket())
	f := newFarmOn(t, redis, fmt.Sprintf("{url: %q}", redis.URL()), "rate: {global: 2000}\nworker: {count: 8, lease: 2s}")
	w := f.workerOn(fmt.Sprintf("{url: \"redis://%s\", timeout: 300ms}", proxy.Addr()))
	var dropped atomic.Int64
	scripts := func(command []byte) bool { // every third call of a script loses its reply
		return bytes.Contains(bytes.ToUpper(command[:min(len(command), 64)]), []byte("EVALSHA")) && dropped.Add(1)%3 == 0
	}
	faults := []func(){func() { proxy.Drop(scripts) }, proxy.Reset, proxy.Half, func() { proxy.Slice(7) }, proxy.Cut}
	var heal sync.WaitGroup
	defer heal.Wait()
	chunks(t, w, "g", n, n/20, func(c int) {
		if c%2 == 0 {
			return
		}
		faults[c/2%len(faults)]()
		heal.Go(func() {
			<-time.After(400 * time.Millisecond)
			proxy.Heal()
		})
	})
	heal.Wait()
	proxy.Heal()
	if g := w.completes("g"); g.Total != n || g.Succeeded != n {
		t.Errorf("%+v", g)
	}
	w.results("g", n)
	byJob(t, f.to.of("g"), n)
	if dropped.Load() == 0 {
		t.Error("no reply was dropped")
	}
}
