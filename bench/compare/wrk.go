package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/anteroom/anteroom/bench/child"
)

// script lets wrk send each request with another credential, the same for every server that is compared, and print its
// summary as JSON. Arguments: file of credentials (one a line), header to send them in, method, body.
const script = `
local started, own, requests, i, n = 0, 0, {}, 0, 0
function setup(thread)
  thread:set("own", started)
  started = started + 1
end
function init(args)
  local body = args[4] ~= "" and args[4] or nil
  for line in io.lines(args[1]) do
    local headers = { ["Accept"] = "application/json" }
    if args[2] ~= "" then headers[args[2]] = line end
    if body then headers["Content-Type"] = "application/json" end
    n = n + 1
    requests[n] = wrk.format(args[3], wrk.path, headers, body)
  end
  i = math.floor(n / 2) * own
end
function request()
  i = i % n + 1
  return requests[i]
end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\nRESULT {"requests":%d,"micros":%d,"p50":%d,"p99":%d,"broken":%d,"refused":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.timeout, e.status))
end
`

// load is one kind of request.
type load struct {
	Credentials string // file, one a line
	Header      string
	Method      string
	Body        string
	Path        string
}

// shot is one run of wrk against one server.
type shot struct {
	Requests float64
	Rate     float64 // requests a second
	CPU      float64 // microseconds of the server's processor time a request; 0: not known
	P99      float64 // milliseconds
}

type bench struct {
	wrk, script string
	connections int
	threads     int
	seconds     int
}

// fire runs wrk against addr and charges the server's processor time to the requests.
func (b *bench) fire(ctx context.Context, server *child.Child, addr string, l load) (shot, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(b.seconds)*time.Second+30*time.Second)
	defer cancel()
	before, cpuErr := child.CPU(server.PID())
	if cpuErr != nil && !errors.Is(cpuErr, child.ErrNoCPU) {
		return shot{}, fmt.Errorf("%s: %w", server.Name, cpuErr)
	}
	cmd := exec.CommandContext(ctx, b.wrk, "-t", fmt.Sprint(b.threads), "-c", fmt.Sprint(b.connections), "-d", fmt.Sprintf("%ds", b.seconds),
		"-s", b.script, "http://"+addr+l.Path, "--", l.Credentials, l.Header, l.Method, l.Body)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return shot{}, fmt.Errorf("wrk against %s: %w\n%s", server.Name, err, out)
	}
	after, err := child.CPU(server.PID())
	if err != nil && !errors.Is(err, child.ErrNoCPU) {
		return shot{}, fmt.Errorf("%s: %w", server.Name, err)
	}
	r, err := parseWrk(out)
	if err != nil {
		return shot{}, fmt.Errorf("wrk against %s: %w", server.Name, err)
	}
	s := shot{Requests: float64(r.Requests), Rate: float64(r.Requests) / (float64(r.Micros) / 1e6), P99: r.P99 / 1000}
	if cpuErr == nil {
		s.CPU = float64((after - before).Microseconds()) / float64(r.Requests)
	}
	return s, nil
}

type wrkResult struct {
	Requests, Micros int64
	P50, P99         float64 // microseconds
	Broken, Refused  int64
}

// parseWrk reads what the script printed. A run with refusals is not a measurement: a refusal costs something else.
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
