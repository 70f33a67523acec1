package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// farm sends the requests of all strategies.
type farm struct {
	targets        []string
	room           string
	tries          int
	clients        int
	workers        int
	http           *http.Client
	nextTarget     atomic.Int64
	solving        chan struct{}
	solvingStarted sync.Once
}

// report is the result of a strategy.
type report struct {
	Strategy string         `json:"strategy"`
	Tries    int            `json:"tries"`
	Places   int            `json:"places"` // tickets that wait or were admitted, after a poll of each
	Tokens   int            `json:"tokens"` // received, places or not
	Seconds  float64        `json:"seconds"`
	CPU      float64        `json:"cpu_seconds"` // of this process
	Refused  map[string]int `json:"refused"`     // by code, or by the state and reason of the poll
}

func (r *report) String() string {
	var refused []string
	for _, code := range slices.Sorted(maps.Keys(r.Refused)) {
		refused = append(refused, fmt.Sprintf("%s %d", code, r.Refused[code]))
	}
	cost := "-"
	if r.Places > 0 {
		cost = fmt.Sprintf("%.4f s", r.CPU/float64(r.Places))
	}
	return fmt.Sprintf("%-16s %8d %8d %8.1f %10s  %s", r.Strategy, r.Tries, r.Places, r.Seconds, cost, strings.Join(refused, ", "))
}

func cpu() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// attack runs a strategy with all clients until its tries are made or ctx ends.
func (f *farm) attack(ctx context.Context, s *strategy) (*report, error) {
	f.solvingStarted.Do(func() { f.solving = make(chan struct{}, max(1, f.workers)) })
	r := &report{Strategy: s.name, Refused: map[string]int{}}
	begun, used := time.Now(), cpu()
	var mu sync.Mutex
	places := map[string]bool{}
	shared, proof := "", ""
	if s.replay {
		var err error
		if proof, err = f.prove(ctx, s.address(0)); err != nil {
			return nil, err
		}
	}
	try := func(i int) {
		mu.Lock()
		with := shared
		mu.Unlock()
		o, err := f.try(ctx, s, i, with, proof)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			if ctx.Err() == nil {
				r.Tries++
				r.Refused["error"]++
			}
			return
		}
		r.Tries++
		if o.token != "" {
			r.Tokens++
		}
		switch {
		case o.refused != "":
			r.Refused[o.refused]++
		case o.place != "":
			places[o.place] = true
		}
		if s.shared && shared == "" {
			shared = o.token
		}
	}
	first := 0
	if s.shared {
		try(0)
		first = 1
	}
	var next atomic.Int64
	next.Store(int64(first))
	var all sync.WaitGroup
	for range f.clients {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= f.tries {
					return
				}
				try(i)
			}
		})
	}
	all.Wait()
	r.Places, r.Seconds, r.CPU = len(places), time.Since(begun).Seconds(), cpu()-used
	return r, nil
}

// outcome is the result of a try: the ID of the ticket, or why there is no place.
type outcome struct{ token, place, refused string }

func (f *farm) try(ctx context.Context, s *strategy, i int, cookie, proof string) (outcome, error) {
	address := s.address(i)
	header := map[string]string{"Accept": "application/json"}
	if s.key != nil {
		header["Idempotency-Key"] = s.key(i)
	}
	if cookie != "" {
		header["X-Waiting-Room-Token"] = cookie
	}
	if s.page {
		a, err := f.ask(ctx, http.MethodGet, "/.waiting-room/"+f.room+"/", address, map[string]string{"Accept": "text/html"}, "")
		if err != nil {
			return outcome{}, err
		}
		if a.ticket == "" && a.pass == "" {
			return outcome{refused: fmt.Sprintf("page %d %s", a.code, a.state)}, nil
		}
		return f.confirm(ctx, s, address, a)
	}
	body := "{}"
	if s.solve {
		var err error
		if proof, err = f.prove(ctx, address); err != nil {
			return outcome{}, err
		}
	}
	if proof != "" {
		body = `{"altcha":"` + proof + `"}`
	}
	a, err := f.ask(ctx, http.MethodPost, "/.waiting-room/"+f.room+"/tickets", address, header, body)
	if err != nil {
		return outcome{}, err
	}
	if a.code >= 300 {
		return outcome{refused: a.body.Code}, nil
	}
	a.ticket, a.pass = a.body.Token, a.body.Pass
	return f.confirm(ctx, s, address, a)
}

// confirm polls, as a visitor who wants to be admitted does, and returns whether a token is a place.
func (f *farm) confirm(ctx context.Context, s *strategy, address string, a *response) (outcome, error) {
	if a.pass != "" {
		return outcome{token: a.ticket, place: claim(a.pass, "sid")}, nil
	}
	if s.silent {
		return outcome{token: a.ticket, refused: "never polled"}, nil
	}
	p, err := f.ask(ctx, http.MethodGet, "/.waiting-room/"+f.room+"/status", address,
		map[string]string{"Accept": "application/json", "X-Waiting-Room-Token": a.ticket}, "")
	if err != nil {
		return outcome{}, err
	}
	switch p.body.State {
	case "waiting", "admitted", "active", "prequeue":
		return outcome{token: a.ticket, place: claim(a.ticket, "jti")}, nil
	}
	return outcome{token: a.ticket, refused: strings.TrimSpace(p.body.State + " " + p.body.Reason)}, nil
}

// claim returns a claim of a token, without verifying it.
func claim(jwt, name string) string {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims map[string]any
	if json.Unmarshal(text, &claims) != nil {
		return ""
	}
	value, _ := claims[name].(string)
	return value
}

type response struct {
	code         int
	state        string
	ticket, pass string // cookies
	body         struct {
		State, Reason, Code, Token, Pass string

		Challenge, Salt, Signature, Algorithm string
		MaxNumber                             int64
	}
}

func (f *farm) ask(ctx context.Context, method, path, address string, header map[string]string, body string) (*response, error) {
	target := f.targets[int(f.nextTarget.Add(1))%len(f.targets)]
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(target, "/")+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Forwarded-For", address)
	req.Header.Set("User-Agent", "bots")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := f.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	a := &response{code: res.StatusCode, state: res.Header.Get("X-Waiting-Room")}
	for _, c := range res.Cookies() {
		switch {
		case strings.HasSuffix(c.Name, "_ticket"):
			a.ticket = c.Value
		case strings.HasSuffix(c.Name, "_pass"):
			a.pass = c.Value
		}
	}
	if strings.Contains(res.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(text, &a.body); err != nil {
			return nil, err
		}
	}
	return a, nil
}
