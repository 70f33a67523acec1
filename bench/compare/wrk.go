package main

import (
	"bytes"
	"context"
	_ "embed" // for requests.lua
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

//go:embed requests.lua
var script string

// request is one kind of request.
type request struct {
	Credentials string // file, one a line
	Header      string
	Method      string
	Body        string
	Path        string
	Fields      string // further header lines, between bars
}

// contest is one of the servers that are compared.
type contest struct {
	server *rig.Child
	addr   string
}

// shot is one run of wrk against one server.
type shot struct {
	Requests float64
	Rate     float64 // requests a second
	CPU      float64 // microseconds of the server's processor time a request; 0 if not known
	P99      float64 // milliseconds
}

// fire runs wrk and divides the server's processor time by the requests.
func (b *bench) fire(what string, c contest, r request) shot {
	return b.fireTogether(what, []contest{c}, []request{r})[0]
}

// fireTogether is fire for servers that share the generator's threads and connections at the same time.
func (b *bench) fireTogether(what string, contests []contest, requests []request) []shot {
	n := len(contests)
	shots, errs := make([]shot, n), make([]error, n)
	var all sync.WaitGroup
	for i := range contests {
		all.Go(func() {
			shots[i], errs[i] = b.shoot(contests[i], requests[i], max(1, b.threads/n), max(1, b.connections/n))
		})
	}
	all.Wait()
	for i, s := range shots {
		name := contests[i].server.Name
		rig.Require(errs[i] == nil, "%s: wrk against %s: %v", what, name, errs[i])
		rig.Say("%s: %-8s %9.0f/s  %6.2f µs CPU  p99 %.2f ms", what, name, s.Rate, s.CPU, s.P99)
	}
	return shots
}

func (b *bench) shoot(c contest, r request, threads, connections int) (s shot, err error) {
	ctx, cancel := context.WithTimeout(b, time.Duration(b.seconds)*time.Second+30*time.Second)
	defer cancel()
	before, cpuErr := rig.CPU(c.server.PID())
	cmd := rig.Program(ctx, b.wrk, "-t", fmt.Sprint(threads), "-c", fmt.Sprint(connections), "-d", fmt.Sprintf("%ds", b.seconds),
		"-s", b.script, "http://"+c.addr+r.Path, "--", r.Credentials, r.Header, r.Method, r.Body, r.Fields)
	out, err := cmd.Output()
	result, parseErr := parseWrk(out)
	if err = errors.Join(err, parseErr); err != nil {
		return s, err
	}
	after, err := rig.CPU(c.server.PID())
	cpuErr = errors.Join(cpuErr, err)
	s = shot{Requests: float64(result.Requests), Rate: float64(result.Requests) / (float64(result.Micros) / 1e6), P99: result.P99 / 1000}
	if cpuErr == nil {
		s.CPU = float64((after - before).Microseconds()) / s.Requests
	} else if !errors.Is(cpuErr, rig.ErrNoCPU) {
		return s, cpuErr
	}
	return s, nil
}

// turns measures the servers in turns and returns the medians of each.
func (b *bench) turns(what string, rounds int, r request, contests ...contest) (medians []shot) {
	for _, shots := range table.Turns(rounds, len(contests), func(n, i int) shot {
		return b.fire(fmt.Sprintf("%s, round %d of %d", what, n, rounds), contests[i], r)
	}) {
		medians = append(medians, median(shots))
	}
	return medians
}

// median returns the medians of the figures, and the sum of the requests.
func median(shots []shot) (m shot) {
	for _, s := range shots {
		m.Requests += s.Requests
	}
	m.Rate = table.MedianOf(shots, func(s shot) float64 { return s.Rate })
	m.CPU = table.MedianOf(shots, func(s shot) float64 { return s.CPU })
	m.P99 = table.MedianOf(shots, func(s shot) float64 { return s.P99 })
	return m
}

type wrkResult struct {
	Requests, Micros int64
	P50, P99         float64 // microseconds
	Broken, Refused  int64
}

// parseWrk reads the summary that the script prints. It returns an error for a run with refusals, whose cost differs.
func parseWrk(out []byte) (wrkResult, error) {
	var r wrkResult
	_, raw, ok := bytes.Cut(out, []byte("\nRESULT "))
	if !ok {
		return r, fmt.Errorf("no result in\n%s", out)
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&r); err != nil {
		return r, fmt.Errorf("%w in\n%s", err, out)
	}
	switch bad := r.Broken + r.Refused; {
	case r.Requests == 0 || r.Micros == 0:
		return r, errors.New("no request was answered")
	case bad*1000 > r.Requests:
		return r, fmt.Errorf("%d of %d requests failed (%d connections broken or late, %d with a status over 399)", bad, r.Requests, r.Broken, r.Refused)
	}
	return r, nil
}
