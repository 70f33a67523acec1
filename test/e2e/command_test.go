package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/freeport"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestCheckConfig(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		path := tempDir(t) + "/gateway.yaml"
		write(t, path, text)
		return path
	}
	const origins = "origins: [{id: shop, servers: [\"http://127.0.0.1:9000\"]}]\n"
	for _, row := range []struct {
		name, yaml string
		code       int
		says       []string
	}{
		{"good", origins + "rooms: [{id: sale}]\n", 0, nil},
		{"empty", "", 2, nil},
		{"several problems", origins + "lisen: x\nrooms: [{id: Sale!, admission: {rate: \"x\", max_active: 1.5}, queue: {absence: 1m}}]\nadmin: {listen: \"0.0.0.0:1\"}\n", 2,
			[]string{"lisen", "rooms[0].id", "rooms[0].admission.rate", "rooms[0].admission.max_active", "rooms[0].queue.absence", "admin"}},
		{"no YAML", "rooms: [", 2, nil},
		{"a short secret", origins + "tokens: {keys: [{id: k, secret: short}]}\n", 2, []string{"tokens.keys[0].secret"}},
		{"a store without a key", origins + "store: {url: \"redis://127.0.0.1:1\"}\n", 2, []string{"tokens.keys"}},
		{"an unknown origin", origins + "rooms: [{id: sale, origin: nosuch}]\n", 2, []string{"rooms[0].origin"}},
		{"two rooms of one id", origins + "rooms: [{id: sale}, {id: sale, paths: [/x]}]\n", 2, []string{"rooms[1].id"}},
		{"a bad regex", origins + "rooms: [{id: sale, paths: [\"~(\"]}]\n", 2, []string{"rooms[0].paths[0]"}},
		{"four decimals", origins + "rooms: [{id: sale, admission: {rate: 0.0001}}]\n", 2, []string{"rooms[0].admission.rate"}},
	} {
		code, stdout, stderr := command(t, nil, "check-config", "--config", file(row.yaml))
		if code != row.code {
			t.Errorf("%s: exit %d, want %d\n%s%s", row.name, code, row.code, stdout, stderr)
		}
		for _, path := range row.says {
			if !strings.Contains(stderr, path) {
				t.Errorf("%s: stderr does not name %s:\n%s", row.name, path, stderr)
			}
		}
		if row.code == 2 && (stdout != "" || stderr == "" || strings.Contains(stderr, "short") && row.name == "a short secret" && strings.Contains(stderr, `"short"`)) {
			t.Errorf("%s: stdout %q, stderr %q", row.name, stdout, stderr)
		}
	}
	if code, _, stderr := command(t, nil, "check-config", "--config", "/nonexistent.yaml"); code != 2 || !strings.Contains(stderr, "/nonexistent.yaml") {
		t.Errorf("no such file: %d %s", code, stderr)
	}
	// --store tries the store.
	live := redistest.Server(t)
	withStore := func(url string) string {
		return file(origins + "rooms: [{id: sale}]\nstore: {url: \"" + url + "\"}\ntokens: {keys: [{id: k, secret: " + signingSecret + "}]}\n")
	}
	if code, _, stderr := command(t, nil, "check-config", "--store", "--config", withStore(live.URL())); code != 0 {
		t.Errorf("a live store: %d %s", code, stderr)
	}
	if code, _, stderr := command(t, nil, "check-config", "--store", "--config", withStore("redis://user:hidden-password@"+freeport.Address(t))); code != 2 || strings.Contains(stderr, "hidden-password") || stderr == "" {
		t.Errorf("a dead store: %d %s", code, stderr)
	}
	evicting := redistest.Server(t, "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
	if code, _, stderr := command(t, nil, "check-config", "--store", "--config", withStore(evicting.URL())); code != 2 || !strings.Contains(stderr, "noeviction") {
		t.Errorf("a store that evicts: %d %s", code, stderr)
	}
}

func TestPrintConfigMasksSecrets(t *testing.T) {
	t.Parallel()
	path := tempDir(t) + "/gateway.yaml"
	write(t, path, `origins: [{id: shop, servers: ["http://127.0.0.1:9000"]}]
rooms: [{id: sale, admission: {rate: 2.5}}]
store: {url: "redis://user:store-password@127.0.0.1:6379/0"}
admin: {token: `+adminToken+`}
tokens: {keys: [{id: k, secret: `+signingSecret+`}]}
`)
	code, stdout, stderr := command(t, []string{"ANTEROOM_LISTEN=127.0.0.1:7000"}, "print-config", "--config", path)
	if code != 0 {
		t.Fatalf("%d %s", code, stderr)
	}
	for _, secret := range []string{"store-password", adminToken, signingSecret} {
		if strings.Contains(stdout+stderr, secret) {
			t.Errorf("it prints %s", secret)
		}
	}
	for _, want := range []string{"127.0.0.1:7000", "2.5", "sale", "absence: 10m"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestCommandLine_NamesMistakes(t *testing.T) {
	t.Parallel()
	withRooms := tempDir(t) + "/gateway.yaml"
	write(t, withRooms, "origins: [{id: shop, servers: [\"http://127.0.0.1:9000\"]}]\nrooms: [{id: sale}]\n")
	for _, row := range []struct {
		args []string
		env  []string
		says string
	}{
		{args: []string{"--nosuch"}, says: "nosuch"},
		{args: []string{"nosuch"}, says: "nosuch"},
		{args: []string{"serve", "more"}, says: "more"},
		{args: []string{"--origin", "http://127.0.0.1:9000", "--rate", "x"}, says: "rate"},
		{args: []string{"--origin", "http://127.0.0.1:9000", "--rate", "-1"}, says: "rate"},
		{args: []string{"--origin", "nonsense"}, says: "origin"},
		{args: []string{"--config", withRooms, "--rate", "5"}, says: "--rate"},
		{args: []string{"--config", withRooms, "--origin", "http://127.0.0.1:9001"}, says: "--origin"},
		{args: []string{"--config", "/nonexistent"}, says: "/nonexistent"},
		{args: []string{"--origin", "http://127.0.0.1:9000", "--admin-listen", "0.0.0.0:0"}, says: "admin"},
		{args: []string{"--origin", "http://127.0.0.1:9000", "--admin-listen", ":0"}, says: "admin"},
		{args: []string{"--origin", "http://127.0.0.1:9000"}, env: []string{"ANTEROOM_NOSUCH=1"}, says: "ANTEROOM_NOSUCH"},
		{args: []string{"--origin", "http://127.0.0.1:9000"}, env: []string{"ANTEROOM_ROOMS__0__ID=x"}, says: "ANTEROOM_ROOMS__0__ID"},
		{args: []string{"--origin", "http://127.0.0.1:9000"}, env: []string{"ANTEROOM_SHUTDOWN_TIMEOUT=soon"}, says: "SHUTDOWN_TIMEOUT"},
		{args: nil, says: "origin"},
	} {
		code, stdout, stderr := command(t, row.env, row.args...)
		if code != 2 || !strings.Contains(stderr, row.says) || stdout != "" {
			t.Errorf("%v %v: exit %d, want 2, and %q on stderr\n%s%s", row.env, row.args, code, row.says, stdout, stderr)
		}
	}
	if code, stdout, _ := command(t, nil, "version"); code != 0 || !strings.HasPrefix(stdout, "gateway ") {
		t.Errorf("version: %d %q", code, stdout)
	}
	if code, stdout, _ := command(t, nil, "keys", "generate"); code != 0 || !strings.Contains(stdout, "HS256") {
		t.Errorf("keys generate: %d %q", code, stdout)
	}
	if code, stdout, _ := command(t, nil, "--help"); code != 0 || !strings.Contains(stdout, "--origin") {
		t.Errorf("--help: %d %q", code, stdout)
	}
}

// A listener on every address needs a token, and then starts.
func TestAdminListen_BeyondLoopbackRequiresToken(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	g := startPlain(t, []string{"ANTEROOM_ADMIN__TOKEN=" + adminToken, "ANTEROOM_KUBERNETES_SERVICE_HOST=10.0.0.1", "ANTEROOM_PORT_8080_TCP=tcp://10.0.0.1:8080"},
		"--origin", site.URL, "--listen", "127.0.0.1:0", "--admin-listen", "0.0.0.0:0")
	g.secret(adminToken)
	_, port, err := net.SplitHostPort(g.admin)
	if err != nil {
		t.Fatal(err)
	}
	g.process.admin = "127.0.0.1:" + port
	adminOf(t, g).get("rooms").want(http.StatusUnauthorized)
	(&operator{t: t, g: g, token: adminToken}).get("rooms").want(http.StatusOK)
}

// Flags win over the environment, the environment over the file.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	path := tempDir(t) + "/gateway.yaml"
	write(t, path, "listen: \"127.0.0.1:1\"\nshutdown_timeout: 1s\norigins: [{id: shop, servers: [\"http://127.0.0.1:9000\"]}]\nlog: {level: debug}\n")
	_, stdout, stderr := command(t, []string{"ANTEROOM_LISTEN=127.0.0.1:2", "ANTEROOM_SHUTDOWN_TIMEOUT=2s", "ANTEROOM_TRUSTED_PROXIES=10.0.0.0/8,192.0.2.0/24"},
		"print-config", "--config", path, "--listen", "127.0.0.1:3")
	for _, want := range []string{"127.0.0.1:3", "shutdown_timeout: 2s", "level: debug", "10.0.0.0/8", "192.0.2.0/24"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s%s", want, stdout, stderr)
		}
	}
}

// SIGHUP adds a room and loses no place; a bad file leaves the old configuration in force and is logged.
func TestReload(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	s := setup{origin: site.URL, rooms: []string{"{id: sale, paths: [/sale], admission: {rate: 0}}"}}
	g := start(t, s)
	s.store = ownStore(g.dir)
	c := newClient(t, g)
	first := c.join(g)
	c.get(g, "/vip").has(headers{"X-Origin": "yes"})

	s.rooms = append(s.rooms, "{id: vip, paths: [/vip], admission: {rate: 0}}")
	g.rewrite(s.yaml())
	g.signal(syscall.SIGHUP)
	until(t, "the new room holds people up", func() bool { return c.get(g, "/vip").code == http.StatusAccepted })
	if s := c.poll(g, first.Token); s.State != "waiting" || *s.Position != 1 {
		t.Errorf("after the reload: %v", s)
	}

	g.rewrite("rooms: [{id: vip, admission: {rate: \"x\"}}]\n")
	g.signal(syscall.SIGHUP)
	until(t, "it says what is wrong", func() bool { return strings.Contains(g.text(), "rooms[0].admission.rate") })
	c.get(g, "/vip").want(http.StatusAccepted)
	if s := c.poll(g, first.Token); s.State != "waiting" {
		t.Errorf("after a bad reload: %v", s)
	}

	s.rooms = s.rooms[:1]
	s.rooms[0] = "{id: sale, paths: [/sale], admission: {rate: 100, burst: 100}}"
	g.rewrite(s.yaml())
	g.signal(syscall.SIGHUP)
	until(t, "the room is gone", func() bool { return c.get(g, "/vip").header.Get("X-Origin") != "" })
	until(t, "the new rate lets the first in", func() bool { return c.poll(g, first.Token).Pass != "" })
}

// Every reload logs the settings that need a restart, until the file has their values at the start again.
func TestReload_NamesSettingsThatNeedRestart(t *testing.T) {
	t.Parallel()
	s := setup{origin: newOrigin(t, nil).URL, rooms: []string{room(admission(5, 5))}}
	g := start(t, s)
	s.store = ownStore(g.dir)
	const restart, done, warned = "these settings need a restart", `"msg":"configuration reloaded"`, `"setting":"trusted_proxies[0]"`
	for i, row := range []struct {
		more string
		want int // reloads so far with this log line
	}{
		{"limits: {headers: 50}\n", 1},
		{"limits: {headers: 50}\ntrusted_proxies: [0.0.0.0/0]\n", 2},
		{"", 2},
	} {
		s.more = row.more
		g.rewrite(s.yaml())
		g.signal(syscall.SIGHUP)
		until(t, "it reloads", func() bool { return strings.Count(g.text(), done) == i+1 })
		if n := strings.Count(g.text(), restart); n != row.want {
			t.Errorf("after reload %d: %d say that a restart is needed, want %d", i+1, n, row.want)
		}
	}
	if n := strings.Count(g.text(), warned); n != 1 {
		t.Errorf("%d warnings of what was trusted for a while, want 1", n)
	}
}

// Turning TLS on or off needs a restart; other changes of the same file take effect.
func TestReload_KeepsTLSUntilRestart(t *testing.T) {
	t.Parallel()
	s := setup{origin: newOrigin(t, nil).URL, rooms: []string{room(admission(5, 5))}}
	g := start(t, s)
	s.store = ownStore(g.dir)
	dir := tempDir(t)
	cert, key := newAuthority(t, "site authority").issue("first.test")
	write(t, dir+"/cert.pem", cert)
	write(t, dir+"/key.pem", key)
	s.more = fmt.Sprintf("tls: {cert_file: %s/cert.pem, key_file: %s/key.pem}\n", dir, dir)
	s.rooms = append(s.rooms, "{id: new, paths: [/new], admission: {rate: 0}}")
	g.rewrite(s.yaml())
	g.signal(syscall.SIGHUP)
	until(t, "it reloads", func() bool { return strings.Contains(g.text(), `"msg":"configuration reloaded"`) })
	if text := g.text(); !strings.Contains(text, `"settings":["tls"]`) || strings.Contains(text, "cannot reload") {
		t.Errorf("tls is not named:\n%s", text)
	}
	newClient(t, g).ask(g, http.MethodPost, "/.waiting-room/new/tickets", "").want(http.StatusCreated)
}

// Operators' tokens are loaded again when their file changes.
func TestReload_OperatorTokens(t *testing.T) {
	t.Parallel()
	site := newOrigin(t, nil)
	file := tempDir(t) + "/token"
	write(t, file, "the-first-token-0123456789")
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(5, 5))}, admin: `{listen: "127.0.0.1:0", tokens: [{name: ops, token_file: ` + file + `}]}`})
	first, second := &operator{t: t, g: g, token: "the-first-token-0123456789"}, &operator{t: t, g: g, token: "the-second-token-0123456789"}
	first.get("rooms").want(http.StatusOK)
	write(t, file, "the-second-token-0123456789")
	until(t, "the old token is refused", func() bool { return first.get("rooms").code == http.StatusUnauthorized })
	second.get("rooms").want(http.StatusOK)
}

// After SIGTERM the gateway is not ready, completes the running request and exits with 0; its store ends too.
func TestSIGTERM_Drains(t *testing.T) {
	t.Parallel()
	release, arrived := make(chan struct{}), make(chan struct{})
	site := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(arrived)
			<-release
		}
		_, _ = io.WriteString(w, "done")
	})
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(50, 50))}})
	o, c := adminOf(t, g), newClient(t, g)
	o.ask(http.MethodGet, "/readyz", "").want(http.StatusOK)
	got := make(chan answer, 1)
	go func() {
		a, err := c.try(g, http.MethodGet, "/slow", "")
		if err != nil {
			a.body = err.Error()
		}
		got <- a
	}()
	<-arrived
	g.signal(syscall.SIGTERM)
	until(t, "it is not ready", func() bool { return o.ask(http.MethodGet, "/readyz", "").code == http.StatusServiceUnavailable })
	o.ask(http.MethodGet, "/healthz", "").want(http.StatusOK)
	close(release)
	if a := <-got; a.code != http.StatusOK || a.body != "done" {
		t.Errorf("the running request: %d %s", a.code, a.body)
	}
	if code := g.wait(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A second signal ends the process immediately, whatever requests run.
func TestSIGTERM_SecondEndsProcess(t *testing.T) {
	t.Parallel()
	release, arrived := make(chan struct{}), make(chan struct{})
	site := newOrigin(t, func(_ http.ResponseWriter, r *http.Request) { close(arrived); <-release })
	t.Cleanup(func() { close(release) }) // before the site is closed
	g := start(t, setup{origin: site.URL, rooms: []string{room(admission(50, 50))}, more: ""})
	go func() { _, _ = newClient(t, g).try(g, http.MethodGet, "/", "") }()
	<-arrived
	g.signal(syscall.SIGTERM)
	until(t, "it drains", func() bool { return strings.Contains(g.text(), "drain") })
	g.signal(syscall.SIGTERM)
	// The process waits neither for the request, which never ends, nor for shutdown_timeout, after which it would exit with 0.
	if code := g.wait(); code == 0 {
		t.Error("exit 0 though a request was cut")
	}
}

// Requests that run longer than shutdown_timeout are cut off.
func TestShutdownTimeout_IsKept(t *testing.T) {
	t.Parallel()
	release, arrived := make(chan struct{}), make(chan struct{})
	site := newOrigin(t, func(_ http.ResponseWriter, r *http.Request) { close(arrived); <-release })
	t.Cleanup(func() { close(release) })
	g := startPlain(t, []string{"ANTEROOM_SHUTDOWN_TIMEOUT=2s"}, "--origin", site.URL, "--rate", "50", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	go func() { _, _ = newClient(t, g).try(g, http.MethodGet, "/", "") }()
	<-arrived
	began := time.Now()
	g.signal(syscall.SIGTERM)
	code := g.wait()
	// Without the setting the request would have thirty seconds.
	if took := time.Since(began); code != 0 || took > 25*time.Second {
		t.Errorf("exit %d after %s, want 0 soon after 2s", code, took)
	}
}

// A port in use is an error that names the setting.
func TestListen_PortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dir := tempDir(t)
	code, _, stderr := command(t, []string{"ANTEROOM_STORE__DIR=" + dir}, "--origin", "http://127.0.0.1:9", "--listen", l.Addr().String(), "--admin-listen", "127.0.0.1:0")
	if code == 0 || !strings.Contains(stderr, `listen: "`+l.Addr().String()+`" is taken`) {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if _, err := os.Stat(dir + "/redis.sock"); err == nil {
		t.Error("its store is left behind")
	}
}
