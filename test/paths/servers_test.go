package paths

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/anteroom/anteroom/internal/freeport"
)

// patience bounds every wait; it only decides how long a failure takes.
const patience = 2 * time.Minute

// handlers are the handlers that each server has, beside other for the rest.
var handlers = []string{"sale", "static", "vip"}

// server is one way to read a path.
type server struct{ name, addr string }

// startServers starts all servers that are installed, and logs which are not.
func startServers(t *testing.T) (all []server) {
	t.Helper()
	for name, start := range map[string]func(*testing.T) ([]server, error){
		"Node": startNode, "Python": startPython, "Tomcat": startTomcat, "nginx": startNginx, "Go": startGo,
	} {
		some, err := start(t)
		if err != nil {
			t.Logf("left out: %s: %v", name, err)
		}
		all = append(all, some...)
	}
	return all
}

// spawn starts a program that prints "name<TAB>port" for each of its servers and then "ready", and ends with its input.
func spawn(t *testing.T, name string, args ...string) ([]server, error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var faults strings.Builder
	cmd.Stderr = &faults
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	var all []server
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		if line == "ready" {
			return all, nil
		}
		if who, port, ok := strings.Cut(line, "\t"); ok {
			all = append(all, server{who, "127.0.0.1:" + port})
		} else {
			t.Log("left out:", line)
		}
	}
	return nil, fmt.Errorf("it ended before it was ready: %s", faults.String())
}

func startNode(t *testing.T) ([]server, error) {
	if _, err := os.Stat("servers/node/node_modules"); err != nil {
		return nil, fmt.Errorf("%w: run tools/npm.sh", err)
	}
	return spawn(t, "node", "servers/node/server.js")
}

func startPython(t *testing.T) ([]server, error) {
	python := "python3"
	if exec.Command(python, "-c", "import flask, django").Run() != nil && exec.Command("/usr/bin/python3", "-c", "").Run() == nil {
		python = "/usr/bin/python3" // which has Debian's packages
	}
	return spawn(t, python, "servers/servers.py")
}

// listening waits until the servers accept connections.
func listening(all []server, ended <-chan error) error {
	for _, s := range all {
		for deadline := time.Now().Add(patience); ; {
			conn, err := net.DialTimeout("tcp", s.addr, time.Second)
			if err == nil {
				_ = conn.Close()
				break
			}
			if time.Now().After(deadline) {
				return err
			}
			select {
			case err := <-ended:
				return fmt.Errorf("it ended instead of listening: %w", err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// run starts a program that serves until it is killed.
func run(t *testing.T, all []server, name string, args ...string) ([]server, error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if err := listening(all, ended); err != nil {
		return nil, err
	}
	return all, nil
}

const tomcatHome = "/usr/share/tomcat10"

func startTomcat(t *testing.T) ([]server, error) {
	if _, err := os.Stat(tomcatHome + "/bin/bootstrap.jar"); err != nil {
		return nil, err
	}
	base := t.TempDir()
	files := map[string]string{}
	for _, name := range append([]string{"other"}, handlers...) {
		files["webapps/ROOT/WEB-INF/"+name+".jsp"] = name
	}
	for from, to := range map[string]string{"server.xml": "conf/server.xml", "web.xml": "webapps/ROOT/WEB-INF/web.xml"} {
		text, err := os.ReadFile("servers/tomcat/" + from)
		if err != nil {
			return nil, err
		}
		files[to] = string(text)
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(base, name)), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"temp", "work", "logs"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			return nil, err
		}
	}
	strict, lenient := freeport.Address(t), freeport.Address(t)
	port := func(address string) string { return strings.TrimPrefix(address, "127.0.0.1:") }
	return run(t, []server{{"Tomcat", strict}, {"Tomcat, lenient", lenient}},
		"java", "-Xmx256m", "-cp", tomcatHome+"/bin/bootstrap.jar:"+tomcatHome+"/bin/tomcat-juli.jar",
		"-Dcatalina.home="+tomcatHome, "-Dcatalina.base="+base, "-Djava.io.tmpdir="+base+"/temp", "-Dpaths.strict="+port(strict), "-Dpaths.lenient="+port(lenient),
		"org.apache.catalina.startup.Bootstrap", "start")
}

func startNginx(t *testing.T) ([]server, error) {
	bin, err := exec.LookPath("nginx")
	if err != nil {
		bin = "/usr/sbin/nginx"
		if _, err := os.Stat(bin); err != nil {
			return nil, err
		}
	}
	dir := t.TempDir()
	merged, apart := freeport.Address(t), freeport.Address(t)
	var locations strings.Builder
	for _, name := range handlers {
		fmt.Fprintf(&locations, "location = /%[1]s { return 200 %[1]s; } location ^~ /%[1]s/ { return 200 %[1]s; }\n", name)
	}
	locations.WriteString("location / { return 200 other; }\n")
	conf := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/errors crit;
events { worker_connections 256; }
http {
  access_log off;
  client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3; uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5;
  server { listen %[2]s; %[4]s }
  server { listen %[3]s; merge_slashes off; %[4]s }
}
`, dir, merged, apart, locations.String())
	path := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		return nil, err
	}
	return run(t, []server{{"nginx", merged}, {"nginx, slashes not merged", apart}}, bin, "-p", dir, "-c", path)
}

// below returns the handler of a path for a server that finds it by prefix.
func below(path string) string {
	for _, name := range handlers {
		if path == "/"+name || strings.HasPrefix(path, "/"+name+"/") {
			return name
		}
	}
	return "other"
}

func startGo(t *testing.T) ([]server, error) {
	mux := http.NewServeMux()
	for _, name := range handlers {
		h := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }
		mux.HandleFunc("/"+name, h)
		mux.HandleFunc("/"+name+"/", h)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other") })
	byPath := func(read func(*http.Request) string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, below(read(r))) })
	}
	var all []server
	for name, h := range map[string]http.Handler{
		"net/http, ServeMux":     mux,
		"net/http, URL.Path":     byPath(func(r *http.Request) string { return r.URL.Path }),
		"net/http, EscapedPath":  byPath(func(r *http.Request) string { return r.URL.EscapedPath() }),
		"net/http, URL.JoinPath": byPath(func(r *http.Request) string { return r.URL.JoinPath().Path }),
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		s := &http.Server{Handler: h, ReadHeaderTimeout: patience}
		go func() { _ = s.Serve(ln) }() // it ends by Close
		t.Cleanup(func() { _ = s.Close() })
		all = append(all, server{name, ln.Addr().String()})
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) { ctx.SetBodyString(below(string(ctx.Path()))) }}
	go func() { _ = s.Serve(ln) }() // it ends by Shutdown
	t.Cleanup(func() { _ = s.Shutdown() })
	return append(all, server{"fasthttp", ln.Addr().String()}), nil
}
