package chart

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestNginx_AsksTheCheck puts the snippets for NGINX Gateway Fabric into the configuration of a real nginx, as that controller does, before
// a real gateway and a site.
func TestNginx_AsksTheCheck(t *testing.T) {
	t.Parallel()
	nginx := findNginx(t)
	r := render(t, override(t, "trial", `
gateway:
  check: {enabled: true, integration: nginxGatewayFabric, trusted: [127.0.0.0/8]}
  config:
    trusted_proxies: [127.0.0.0/8]
    origins: []
    rooms: [{id: sale, paths: [/sale], admission: {rate: 100, max_active: 1}}]
`))
	socket, password := startValkey(t, r)
	m := mount(t, r, programs(r)[0])
	m.useStore(t, socket, password)
	gateway := start(t, m)

	sessions := make(chan string, 16) // that the site has got
	site := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sessions <- strings.Join(r.Header["X-Waiting-Room-Session"], ",")
	}))
	t.Cleanup(site.Close)
	edge := startNginx(t, nginx, snippets(t, r), map[string]string{
		releaseName + "-anteroom-gateway-checks." + namespace + ".svc:8081": gateway.addresses["check"],
		releaseName + "-anteroom-gateway." + namespace + ".svc:80":          gateway.addresses["http"],
	}, site.Listener.Addr().String())

	var seen []string
	get := func(path, cookie string) (*http.Response, string) {
		t.Helper()
		q, err := http.NewRequest(http.MethodGet, "http://"+edge+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept", "text/html")
		q.Header.Set("Sec-Fetch-Dest", "document")
		q.Header.Set("X-Waiting-Room-Session", "forged")
		q.Header.Set("X-Original-URI", "/elsewhere")
		q.Header.Set("Cookie", cookie)
		response, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		for len(sessions) > 0 {
			seen = append(seen, <-sessions)
		}
		return response, string(body)
	}

	first, _ := get("/sale/a?b=c", "")
	pass, _, _ := strings.Cut(first.Header.Get("Set-Cookie"), ";")
	if first.StatusCode != 200 || len(seen) != 1 || seen[0] == "" || seen[0] == "forged" || !strings.HasPrefix(pass, "wr_sale_pass=") {
		t.Fatalf("the first visitor: %d, Set-Cookie %q; the site has got %q", first.StatusCode, pass, seen)
	}
	if cache := first.Header.Get("Cache-Control"); cache != "private, no-store" {
		t.Errorf("a shared cache may store the pass: Cache-Control %q", cache)
	}
	if again, _ := get("/sale", pass); again.Header.Get("Cache-Control") != "" || again.StatusCode != 200 || len(seen) != 2 || seen[1] != seen[0] {
		t.Errorf("the first visitor again: %d %v; the site has got %q", again.StatusCode, again.Header, seen)
	}
	if second, body := get("/sale", ""); second.Header.Get("X-Waiting-Room") == "" || !strings.Contains(body, "<html") || len(seen) != 2 {
		t.Errorf("the second visitor: %d %v, and not the page:\n%s", second.StatusCode, second.Header, body)
	}
	if free, _ := get("/about", ""); free.StatusCode != 200 || len(seen) != 3 || seen[2] != "" {
		t.Errorf("a path without a room: %d; the site has got %q", free.StatusCode, seen)
	}
	if direct, _ := get("/_"+releaseName+"-anteroom-gateway-checks", ""); direct.StatusCode != 404 {
		t.Errorf("a visitor asks the check directly: %d; want 404", direct.StatusCode)
	}
	gateway.stop(t)
	if away, _ := get("/sale", pass); away.StatusCode != 503 || away.Header.Get("Retry-After") != "5" || len(seen) != 3 {
		t.Errorf("without a gateway: %d, Retry-After %q", away.StatusCode, away.Header.Get("Retry-After"))
	}
}

func findNginx(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if file, err := exec.LookPath(name); err == nil {
			return file
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("nginx is not installed")
	}
	t.Skip("nginx is not installed; tools/need.sh nginx installs it")
	return ""
}

// snippets returns the snippets of the only SnippetsFilter, by their context.
func snippets(t *testing.T, r *release) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, u := range of[*unstructured.Unstructured](r) {
		list, _, err := unstructured.NestedSlice(u.Object, "spec", "snippets")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			snippet := s.(map[string]any)
			all[snippet["context"].(string)] = snippet["value"].(string)
		}
	}
	if len(all) != 3 {
		t.Fatalf("%d snippets; want those of http, http.server and http.server.location", len(all))
	}
	return all
}

// startNginx starts nginx with the snippets before a site, and returns its address. addresses replace those of Services.
func startNginx(t *testing.T, nginx string, snippets, addresses map[string]string, site string) string {
	t.Helper()
	// Below the range of outgoing connections, so that none of these takes the port before nginx.
	var free net.Listener
	var err error
	for try := 0; free == nil && try < 100; try++ {
		free, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.N(10_000)))
	}
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	dir := t.TempDir()
	upstreams := snippets["http"]
	for service, here := range addresses {
		if !strings.Contains(upstreams, "server "+service+";") {
			t.Fatalf("no upstream leads to %s:\n%s", service, upstreams)
		}
		upstreams = strings.Replace(upstreams, service, here, 1)
	}
	config := fmt.Sprintf(`daemon off; worker_processes 1; pid nginx.pid; error_log stderr;
events {}
http {
  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
%s
  server {
    listen %s;
%s
    location /.waiting-room/ { proxy_pass http://%s-anteroom-gateway; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; }
    location / {
%s
      proxy_pass http://%s;
    }
  }
}
`, upstreams, address, snippets["http.server"], releaseName, snippets["http.server.location"], site)
	file := filepath.Join(dir, "nginx.conf")
	write(t, file, config)
	cmd := exec.Command(nginx, "-p", dir, "-c", file)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	waitFor(t, "nginx", func() bool {
		if len(ended) > 0 {
			t.Fatalf("nginx has ended: %s\n%s", stderr.String(), config)
		}
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
	return address
}
