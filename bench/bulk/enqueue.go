package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/child"
	"github.com/anteroom/anteroom/bench/table"
)

const (
	chunks      = 10
	connections = 4
)

// way is one way to put all jobs in.
type way struct {
	name string
	put  func(ctx context.Context) error
}

// enqueueing measures how fast jobs come in, asynq by one call a task, ours over HTTP, and what Redis keeps of each.
func enqueueing(ctx context.Context, b *bench) ([]table.Row, error) {
	jobs := b.jobs * 5 / 2 // they come in faster than they run
	front, err := startFront(ctx, b, jobs)
	if err != nil {
		return nil, err
	}
	defer front.process.Stop()
	a := newAsynq(b.redis)
	var ways []way
	for _, goroutines := range []int{8, 64, 256} {
		client := a.clientOf(goroutines)
		defer client.Close()
		ways = append(ways, way{fmt.Sprintf("asynq, %d goroutines", goroutines), func(ctx context.Context) error {
			return a.enqueue(ctx, client, tenantName(0), tenantName(0), jobs, goroutines)
		}})
	}
	peers := len(ways)
	ways = append(ways, way{"ours, one stream", front.stream}, way{"ours, 10 chunks on 4 connections", front.chunked}, way{"ours, 4 streams", front.streams})
	rates, sizes := make([][]float64, len(ways)), make([][]float64, len(ways))
	for r := range b.rounds {
		for k := range ways {
			i := (r + k) % len(ways)
			if err := b.redis.empty(ctx); err != nil {
				return nil, err
			}
			before, err := b.redis.figure(ctx, "memory", "used_memory")
			if err != nil {
				return nil, err
			}
			began := time.Now()
			if err := ways[i].put(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", ways[i].name, err, front.process.Log)
			}
			rate := float64(jobs) / time.Since(began).Seconds()
			after, err := b.redis.figure(ctx, "memory", "used_memory")
			if err != nil {
				return nil, err
			}
			size := (after - before) / float64(jobs)
			say("enqueue, round %d of %d: %-32s %8.0f/s  %4.0f bytes a job", r+1, b.rounds, ways[i].name, rate, size)
			rates[i], sizes[i] = append(rates[i], rate), append(sizes[i], size)
		}
	}
	best := 0
	for i := range peers {
		if table.Median(rates[i]) > table.Median(rates[best]) {
			best = i
		}
	}
	peer := []float64{table.Median(rates[best])}
	var rows []table.Row
	for i := peers; i < len(ways); i++ {
		rows = append(rows, table.Row{What: "enqueue, " + ways[i].name[len("ours, "):], Unit: "/s", Peers: peer, Ours: table.Median(rates[i]),
			Bars: []table.Bar{{Limit: 1, Ratio: true}, {Limit: 200_000}}})
	}
	return append(rows, table.Row{What: "Redis memory", Unit: "bytes a pending job", Peers: []float64{table.Median(sizes[best])}, Ours: table.Median(sizes[peers]),
		Bars: []table.Bar{{Limit: 0.5, AtMost: true, Ratio: true}}}), nil
}

// front is a running bulkworker that hardly starts a job.
type front struct {
	process *child.Child
	url     string
	body    []byte // all jobs
	parts   [][]byte
	seq     int
}

func startFront(ctx context.Context, b *bench, jobs int) (*front, error) {
	addr, err := child.FreePort()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(b.dir, "bulkworker.yaml")
	conf := fmt.Sprintf("listen: %q\nlog: {level: warn}\nstore: {url: %q}\nrate: {global: 0.001}\nworker: {count: 1}\nprocessors: {webhook: {url: \"http://127.0.0.1:9/\"}}\n", addr, b.redis.url())
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	p, err := child.Start("bulkworker", b.bulkworker, "serve", "--config", path)
	if err != nil {
		return nil, err
	}
	if err := p.Ready(ctx, addr); err != nil {
		p.Stop()
		return nil, err
	}
	f := &front{process: p, url: "http://" + addr}
	line := append(append([]byte(`{"payload":`), payload...), "}\n"...)
	f.body = bytes.Repeat(line, jobs)
	size := jobs / chunks * len(line)
	for i := range chunks {
		end := (i + 1) * size
		if i == chunks-1 {
			end = len(f.body)
		}
		f.parts = append(f.parts, f.body[i*size:end])
	}
	return f, nil
}

// send posts a body and checks how many jobs were accepted; want −1: it is no upload.
func (f *front) send(ctx context.Context, path, key string, body []byte, want int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	if want < 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct{ Accepted int }
	if resp.StatusCode > 299 || json.Unmarshal(raw, &answer) != nil || want >= 0 && answer.Accepted != want {
		return fmt.Errorf("POST %s: %s, want %d accepted\n%s", path, resp.Status, want, raw)
	}
	return nil
}

func (f *front) lines(body []byte) int { return bytes.Count(body, []byte{'\n'}) }

func (f *front) stream(ctx context.Context) error { return f.bulk(ctx, f.body) }

func (f *front) bulk(ctx context.Context, body []byte) error {
	f.seq++
	return f.send(ctx, fmt.Sprintf("/v1/bulk?tenant=t0&type=webhook&id=s%d", f.seq), "", body, f.lines(body))
}

// streams sends four groups at once.
func (f *front) streams(ctx context.Context) error {
	parallel, ctx := errgroup.WithContext(ctx)
	line := len(f.body) / f.lines(f.body)
	from := 0
	for i := range connections {
		end := f.lines(f.body) * (i + 1) / connections * line
		part := f.body[from:end]
		from = end
		f.seq++
		path := fmt.Sprintf("/v1/bulk?tenant=t%d&type=webhook&id=s%d", i, f.seq)
		parallel.Go(func() error { return f.send(ctx, path, "", part, f.lines(part)) })
	}
	return parallel.Wait()
}

// chunked sends a group in chunks on several connections.
func (f *front) chunked(ctx context.Context) error {
	f.seq++
	id := fmt.Sprintf("c%d", f.seq)
	if err := f.send(ctx, "/v1/groups", "", fmt.Appendf(nil, `{"id":%q,"tenant":"t0","type":"webhook"}`, id), -1); err != nil {
		return err
	}
	parallel, ctx := errgroup.WithContext(ctx)
	parallel.SetLimit(connections)
	for i, part := range f.parts {
		parallel.Go(func() error {
			return f.send(ctx, "/v1/groups/"+id+"/jobs", fmt.Sprintf("chunk-%d", i), part, f.lines(part))
		})
	}
	return parallel.Wait()
}
