package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

const (
	chunks      = 10
	connections = 4
)

// enqueueing measures how fast jobs are enqueued, with the peers by calls of their libraries, with ours over HTTP, and the memory
// of each in Redis.
func enqueueing(b *bench) []table.Row {
	jobs := b.jobs * 5 / 2 // enqueueing is faster than running
	front := startFront(b, jobs)
	defer front.process.Stop() // or it would pull the jobs of the other parts
	peers := []enqueuer{newAsynq(b.redis)}
	for _, p := range b.peers {
		peers = append(peers, p)
	}
	var ways []way
	var of []int // the peer of a way
	for i, p := range peers {
		for _, w := range p.ways(b, jobs) {
			ways, of = append(ways, w), append(of, i)
		}
	}
	first := len(ways) // of ours
	ways = append(ways, way{name: "ours, one stream", put: front.stream}, way{name: "ours, 10 chunks on 4 connections", put: front.chunked},
		way{name: "ours, 4 streams", put: front.streams})
	rates, sizes := make([][]float64, len(ways)), make([][]float64, len(ways))
	table.Turns(b.rounds, len(ways), func(r, i int) error {
		b.empty()
		for _, p := range b.peers {
			rig.Check(p.empty(b))
		}
		before, began := b.stats().Memory, time.Now()
		rig.Check(ways[i].put(b))
		rate := float64(jobs) / time.Since(began).Seconds()
		size := float64(b.stats().Memory-before) / float64(jobs)
		rig.Say("enqueue, round %d of %d: %-32s %8.0f/s  %4.0f bytes a job", r, b.rounds, ways[i].name, rate, size)
		rates[i], sizes[i] = append(rates[i], rate), append(sizes[i], size)
		return nil
	})
	best, memory := make([]float64, len(peers)), make([]float64, len(peers))
	for i, peer := range of {
		if rate := table.Median(rates[i]); rate > best[peer] {
			best[peer] = rate
			if !ways[i].apart {
				memory[peer] = table.Median(sizes[i])
			}
		}
	}
	var rows []table.Row
	for i := first; i < len(ways); i++ {
		rows = append(rows, table.Row{What: "enqueue, " + ways[i].name[len("ours, "):], Unit: "/s", Peers: best, Ours: table.Median(rates[i]),
			Bars: []table.Bar{{Limit: 1, Ratio: true}, {Limit: 200_000}}})
	}
	return append(rows, table.Row{What: "Redis memory", Unit: "bytes a pending job", Peers: memory, Ours: table.Median(sizes[first]),
		Bars: []table.Bar{{Limit: 0.5, AtMost: true, Ratio: true}}})
}

// front is a running bulkworker that starts hardly any job.
type front struct {
	process *rig.Child
	url     string
	line    []byte // a job
	jobs    int
	seq     int
}

func startFront(b *bench, jobs int) *front {
	process, url := startWorker(b.Run, b.bulkworker, b.redis, `rate: {global: 0.001}
worker: {count: 1}
processors: {webhook: {url: "http://127.0.0.1:9/"}}
`)
	return &front{process: process, url: url, line: fmt.Appendf(nil, "{\"payload\":%s}\n", payload), jobs: jobs}
}

// send posts a body and compares how many jobs were accepted.
func (f *front) send(ctx context.Context, path, key, contentType string, body []byte, want int) error {
	headers := []string{"Content-Type", contentType}
	if key != "" {
		headers = append(headers, "Idempotency-Key", key)
	}
	_, raw, err := rig.Request(ctx, time.Minute, http.MethodPost, f.url+path, body, headers...)
	var result struct{ Accepted int }
	if err == nil && (json.Unmarshal(raw, &result) != nil || result.Accepted != want) {
		err = fmt.Errorf("POST %s: want %d accepted\n%s", path, want, raw)
	}
	return err
}

// upload sends jobs.
func (f *front) upload(ctx context.Context, path, key string, jobs int) error {
	return f.send(ctx, path, key, "application/x-ndjson", bytes.Repeat(f.line, jobs), jobs)
}

// stream sends all jobs in one request.
func (f *front) stream(ctx context.Context) error {
	f.seq++
	return f.upload(ctx, fmt.Sprintf("/v1/bulk?tenant=t0&type=webhook&id=s%d", f.seq), "", f.jobs)
}

// streams sends four groups at the same time.
func (f *front) streams(ctx context.Context) error {
	parallel, ctx := errgroup.WithContext(ctx)
	for i, n := range split(f.jobs, connections) {
		f.seq++
		path := fmt.Sprintf("/v1/bulk?tenant=t%d&type=webhook&id=s%d", i, f.seq)
		parallel.Go(func() error { return f.upload(ctx, path, "", n) })
	}
	return parallel.Wait()
}

// chunked sends a group in chunks on several connections.
func (f *front) chunked(ctx context.Context) error {
	f.seq++
	id := fmt.Sprintf("c%d", f.seq)
	if err := f.send(ctx, "/v1/groups", "", "application/json", fmt.Appendf(nil, `{"id":%q,"tenant":"t0","type":"webhook"}`, id), 0); err != nil {
		return err
	}
	parallel, ctx := errgroup.WithContext(ctx)
	parallel.SetLimit(connections)
	for i, n := range split(f.jobs, chunks) {
		parallel.Go(func() error { return f.upload(ctx, "/v1/groups/"+id+"/jobs", fmt.Sprintf("chunk-%d", i), n) })
	}
	return parallel.Wait()
}

// split divides jobs into n parts.
func split(jobs, n int) []int {
	parts := evenly(jobs, n)
	parts[0] += jobs % n
	return parts
}
