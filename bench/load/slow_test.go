package load

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/freeport"
)

// The server keeps every connection but those with a body.
func TestSlowClients_DoAsNamed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	note := func(what string) { mu.Lock(); seen[what]++; mu.Unlock() }
	count := func(what string) int { mu.Lock(); defer mu.Unlock(); return seen[what] }
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				note("connection")
				in := bufio.NewReader(c)
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if !strings.HasPrefix(line, "POST ") && !strings.Contains(line, " /long ") {
					note("begun")
				}
				req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(line), in)))
				switch {
				case err != nil: // the header never ends
					note("header")
				case req.Method == "POST":
					if _, err := io.ReadFull(req.Body, make([]byte, 2)); err == nil && req.Header.Get("X-Waiting-Room-Pass") == "p" && req.URL.Path == "/up" {
						note("body")
					}
					return // sent away, to see it come back
				case req.URL.Path == "/long":
					note("unread")
					buf := make([]byte, 1<<20)
					for err == nil {
						_, err = c.Write(buf)
					}
				}
			})
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	crowd := newSlowClients(slowOptions{Addr: ln.Addr().String(), Clients: 8, Pass: "p", Upload: "/up", Long: "/long"})
	done := make(chan SlowReport, 1)
	go func() { done <- crowd.run(ctx) }()
	select {
	case <-crowd.ready:
	case <-ctx.Done():
		t.Error("not all clients are connected")
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for (count("body") < 4 || count("unread") < 2 || count("begun") < 2) && ctx.Err() == nil {
		<-tick.C
	}
	cancel()
	report := <-done
	_ = ln.Close()
	serving.Wait()
	if report.SentAway["body"] < 2 || report.SentAway["idle"]+report.SentAway["header"]+report.SentAway["unread"] > 0 || len(report.Failed) > 0 {
		t.Errorf("%+v", report)
	}
	if count("header") != 2 || count("connection") < 10 {
		t.Errorf("seen %v", seen)
	}
}

func TestSlowClients_ReportFailedConnections(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if r := newSlowClients(slowOptions{Addr: freeport.Address(t), Clients: 4}).run(ctx); r.Held != 0 || len(r.Failed) == 0 {
		t.Errorf("%+v", r)
	}
}
