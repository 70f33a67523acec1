package rig

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // for the configurations
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Gateway is a gateway with a configuration of its own.
type Gateway struct {
	*Child
	Addr, Admin string
	Config      string // the path of its configuration file
}

// URL returns the address for visitors.
func (g *Gateway) URL() string { return "http://" + g.Addr }

// Gateway starts a gateway with settings in YAML, to which the two listen addresses are added.
func (r *Run) Gateway(bin, settings string) *Gateway {
	r.started++
	g := &Gateway{Addr: r.Port(), Admin: r.Port(), Config: fmt.Sprintf("%s/gateway-%d.yaml", r.Dir, r.started)}
	Check(g.Write(settings))
	g.Child = r.Start("gateway", bin, g.Addr, "serve", "--config", g.Config)
	return g
}

// Write replaces the settings in the configuration file.
func (g *Gateway) Write(settings string) error {
	text := fmt.Sprintf("listen: %q\nadmin: {listen: %q}\n%s", g.Addr, g.Admin, settings)
	return os.WriteFile(g.Config, []byte(text), 0o600)
}

// Metric returns the sum of the samples of a metric that have all the given labels.
func (g *Gateway) Metric(ctx context.Context, name string, labels ...string) (float64, error) {
	_, page, err := Request(ctx, 10*time.Second, http.MethodGet, "http://"+g.Admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	return sumOf(bytes.NewReader(page), name, labels...)
}

// client keeps as many connections as there are goroutines that send requests.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100, IdleConnTimeout: 10 * time.Second}}

// Request sends a request with the headers, given as names and values, and reads the response. A status other than 2xx is an error.
func Request(ctx context.Context, timeout time.Duration, method, url string, body []byte, headers ...string) (resp *http.Response, read []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	if resp, err = client.Do(req); err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if read, err = io.ReadAll(resp.Body); err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s\n%.1000s", method, url, resp.Status, read)
	}
	return resp, read, err
}

// sumOf adds up the samples of a metric that have all the given labels.
func sumOf(page io.Reader, name string, labels ...string) (sum float64, err error) {
	found := false
	lines := bufio.NewScanner(page)
	lines.Buffer(nil, 1<<20)
next:
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("the gateway has no metric %s{%s}", name, strings.Join(labels, ","))
	}
	return sum, lines.Err()
}

// secret signs the tokens of all gateways that one process starts.
var secret = sync.OnceValue(func() string { return rand.Text() + rand.Text() })

// SharedStore returns the settings of gateways that are one room over a store: its URL and the key of their tokens.
func SharedStore(url string) string {
	return fmt.Sprintf("log: {level: warn, access: false}\nstore: {url: %q}\ntokens: {keys: [{id: k1, alg: HS256, secret: %s, active: true}]}\n", url, secret())
}

// OwnStore returns the settings of a gateway with an embedded store.
func (r *Run) OwnStore() string {
	r.started++
	return fmt.Sprintf("log: {level: warn, access: false}\nstore: {dir: \"%s/store-%d\"}\n", r.Dir, r.started)
}

var (
	//go:embed nginx.conf
	nginxConfig string
	//go:embed haproxy.cfg
	haproxyConfig string
)

// Nginx starts nginx with server blocks; 0 workers: one a core.
func (r *Run) Nginx(name string, workers int, addr, servers string) *Child {
	count := "auto"
	if workers > 0 {
		count = strconv.Itoa(workers)
	}
	values := strings.NewReplacer("{workers}", count, "{dir}", r.Dir, "{name}", name, "{servers}", servers)
	return r.Start(name, Must(Find("nginx")), addr, "-p", r.Dir, "-c", r.File(name+".conf", values.Replace(nginxConfig)))
}

// NginxProxy returns the server block of a proxy.
func NginxProxy(addr, origin, settings string) string {
	return fmt.Sprintf(`  upstream origin { server %s; keepalive 256; keepalive_requests 100000000; }
  server {
    listen %s;
    location / { proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; %s }
  }
`, origin, addr, settings)
}

// HAProxy starts HAProxy in front of an origin.
func (r *Run) HAProxy(addr, origin string) *Child {
	values := strings.NewReplacer("{addr}", addr, "{origin}", origin)
	return r.Start("haproxy", Must(Find("haproxy")), addr, "-db", "-f", r.File("haproxy.cfg", values.Replace(haproxyConfig)))
}
