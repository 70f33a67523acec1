package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// answer is what one request got.
type answer struct {
	body  []byte
	code  int
	room  string
	close bool
}

// fetch gets one answer, as wrk would ask for it.
func fetch(ctx context.Context, url, header, credential string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set(header, credential)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, fmt.Errorf("GET %s: %w", url, err)
	}
	return answer{body, resp.StatusCode, resp.Header.Get("X-Waiting-Room"), resp.Close}, nil
}

// same makes sure that those who are compared answer the same: as many bytes, on a connection that they keep.
func same(ctx context.Context, s *stage, pass string) error {
	for name, addr := range map[string]string{"nginx": s.proxyAddr, "HAProxy": s.haproxyAddr, "gateway": s.gatewayAddr} {
		a, err := fetch(ctx, "http://"+addr+"/", "X-Waiting-Room-Pass", pass)
		if err != nil {
			return err
		}
		if a.code != 200 || len(a.body) != originBytes || a.close {
			return fmt.Errorf("%s answers %d with %d bytes (connection closed: %v), want 200 with %d on a kept one", name, a.code, len(a.body), a.close, originBytes)
		}
	}
	return nil
}

// passed is how many requests the gateway has let through to the origin of the open room because of a pass.
func passed(s *stage) (float64, error) {
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + s.adminAddr + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return sumOf(resp.Body, "anteroom_requests_total{", `outcome="proxied"`, `room="open"`)
}

// sumOf adds up the lines of a metrics page that begin so and have these labels.
func sumOf(page io.Reader, prefix string, labels ...string) (sum float64, err error) {
	found := false
	lines := bufio.NewScanner(page)
	lines.Buffer(nil, 1<<20)
next:
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("the metrics lack %s…%s", prefix, strings.Join(labels, ","))
	}
	return sum, lines.Err()
}
