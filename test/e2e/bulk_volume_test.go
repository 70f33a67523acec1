package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// uploadMany streams a group of n jobs whose lines are nowhere as a whole.
func uploadMany(t *testing.T, w *bulkWorker, tenant, id string, n int) {
	t.Helper()
	body, in := io.Pipe()
	go func() {
		lines := bufio.NewWriterSize(in, 1<<16)
		for i := range n {
			_, _ = fmt.Fprintf(lines, "{\"id\":\"j%d\",\"payload\":{\"to\":\"user%d@example.com\",\"text\":\"hello\"}}\n", i, i)
		}
		_ = lines.Flush()
		_ = in.Close()
	}()
	defer body.Close()
	ctx, cancel := context.WithTimeout(context.Background(), bulkPatience())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/bulk?type=webhook&tenant="+tenant+"&id="+id, body)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	res, err := bulkHTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	g := into[bulkGroup](answer{t: t, asked: "the upload", code: res.StatusCode, body: string(text)}.want(http.StatusCreated))
	if g.Accepted != n || g.Duplicates != 0 || g.Total != n {
		t.Fatalf("of %d jobs: %+v", n, g)
	}
	t.Logf("%d jobs were taken in %s, %.0f/s", n, time.Since(began).Round(time.Millisecond), float64(n)/time.Since(began).Seconds())
}

// memory reads a process's resident memory now and at its most, in MiB; 0 where the system does not tell.
func memory(t *testing.T, pid int) (now, most int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	read := func(name string) int {
		_, rest, _ := strings.Cut(string(text), name)
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return 0
		}
		kib, _ := strconv.Atoi(fields[0])
		return kib >> 10
	}
	return read("\nVmRSS:"), read("\nVmHWM:")
}

// A group of very many jobs is uploaded, run, and its results are downloaded, in bounded memory.
func TestBulkVolume_ManyJobs(t *testing.T) {
	t.Parallel()
	n := sized(12_000, 1_000_000)
	f := newFarm(t, "rate: {global: 1000000}\nworker: {count: 32, batch: 200}")
	w := f.worker()
	before, _ := memory(t, w.cmd.Process.Pid)
	uploadMany(t, w, "acme", "many", n)
	g := w.completes("many")
	if g.Total != n || g.Succeeded != n {
		t.Errorf("%+v", g)
	}
	t.Logf("they ran in %s, %.0f/s", g.FinishedAt.Sub(g.StartedAt), float64(n)/g.FinishedAt.Sub(g.StartedAt).Seconds())
	began := time.Now()
	for id, o := range w.results("many", n) {
		if o.Status != "succeeded" {
			t.Errorf("job %s: %+v", id, o)
		}
	}
	t.Logf("their results came in %s", time.Since(began))
	once(t, f.to.of("many"), n)
	now, most := memory(t, w.cmd.Process.Pid)
	t.Logf("memory: %d MiB before, %d MiB after, %d MiB at most", before, now, most)
	if most-before > 200 {
		t.Errorf("the bulk worker's memory grew by %d MiB", most-before)
	}
}
