package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds every wait. Tests run on busy machines; it only decides how long a failure takes.
const patience = time.Minute

const (
	signingSecret = "e2e-signing-secret-of-40-bytes-or-longer"
	adminToken    = "e2e-operators-token-0123456789"
)

// setup is a configuration file in the making. Its parts are YAML; the zero value of each is what most tests need.
type setup struct {
	origin string   // URL of the origin "shop"
	store  string   // flow mapping; empty: embedded, in a directory of the test's
	rooms  []string // flow mappings
	more   string   // further top-level lines
	admin  string   // flow mapping; empty: loopback without a token
	listen string
	alone  bool // the store is not there when the gateway starts
}

// slowStore is how long a call of the store may take: on a busy machine a quarter of a second may pass with nothing done, and then
// visitors are rightly served by on_store_error. Tests of a store that hangs have less.
const slowStore = "5s"

// ownStore is a store of the gateway's own, as a flow mapping.
func ownStore(dir string) string { return fmt.Sprintf("{dir: %q, timeout: %s}", dir, slowStore) }

// ownStoreEnv is the same as environment.
func ownStoreEnv(dir string) []string {
	return []string{"ANTEROOM_STORE__DIR=" + dir, "ANTEROOM_STORE__TIMEOUT=" + slowStore}
}

// withRedis puts the site on a store that several gateways may share.
func (s setup) withRedis(url string) setup { return s.withRedisFor(url, slowStore) }

// withRedisFor is withRedis with a time-out of its own.
func (s setup) withRedisFor(url, timeout string) setup {
	s.store = fmt.Sprintf("{url: %q, timeout: %s}", url, timeout)
	s.more += fmt.Sprintf("\ntokens: {keys: [{id: k1, alg: HS256, secret: %q, active: true}]}\n", signingSecret)
	return s
}

func (s setup) yaml() string {
	var b strings.Builder
	listen, admin := s.listen, s.admin
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	if admin == "" {
		admin = `{listen: "127.0.0.1:0"}`
	}
	fmt.Fprintf(&b, "listen: %q\nadmin: %s\nstore: %s\n", listen, admin, s.store)
	if !strings.Contains(s.more, "shutdown_timeout:") {
		b.WriteString("shutdown_timeout: 10s\n")
	}
	if !strings.Contains(s.more, "origins:") {
		fmt.Fprintf(&b, "origins: [{id: shop, servers: [%q]}]\n", s.origin)
	}
	if len(s.rooms) > 0 {
		b.WriteString("rooms:\n")
	}
	for _, room := range s.rooms {
		fmt.Fprintf(&b, "  - %s\n", room)
	}
	b.WriteString(s.more)
	return b.String()
}

// gateway is a running gateway and the files that it was given.
type gateway struct {
	t      testing.TB
	config string // file; empty where flags alone describe it
	dir    string // of the embedded store; empty with another
	args   []string
	env    []string
	addr   string // of the visitors' socket; the same over restart
	alone  bool   // setup's

	past string // log of former runs

	mu      sync.Mutex
	secrets map[string]bool // that clients were given; none may be in the log

	*process
}

// process is one run of the program.
type process struct {
	cmd   *exec.Cmd
	admin string
	ended chan struct{} // closed when it has ended and its log is complete
	err   error         // of Wait; read it after ended

	mu  sync.Mutex
	log strings.Builder
}

// start writes the configuration and starts a gateway with it, ready to serve. It ends with the test, which fails if the
// program did not end well or told its log a secret.
func start(t testing.TB, s setup, args ...string) *gateway {
	t.Helper()
	g := &gateway{t: t, secrets: map[string]bool{signingSecret: true, adminToken: true}, alone: s.alone}
	if s.store == "" {
		g.dir = tempDir(t)
		s.store = ownStore(g.dir)
	}
	g.config = filepath.Join(tempDir(t), "gateway.yaml")
	g.rewrite(s.yaml())
	g.args = append([]string{"--config", g.config}, args...)
	g.begin()
	return g
}

// startPlain starts a gateway with flags and environment alone, in a directory of its own.
func startPlain(t testing.TB, env []string, args ...string) *gateway {
	t.Helper()
	g := &gateway{t: t, secrets: map[string]bool{}, dir: tempDir(t), args: args}
	g.env = append(ownStoreEnv(g.dir), env...)
	g.begin()
	return g
}

func (g *gateway) begin() {
	g.t.Helper()
	// Registered first, so that it runs when the process has ended.
	g.t.Cleanup(g.inspect)
	g.process = launch(g.t, g.env, g.args...)
	g.t.Cleanup(g.end)
	g.ready()
	g.awaitStore()
}

// awaitStore waits until the gateway has reached the store. A visitor who comes before gets a place that is put in order later, and on a
// busy machine the start of the store and the first call take long.
func (g *gateway) awaitStore() {
	g.t.Helper()
	if !g.alone {
		until(g.t, "the gateway has reached the store", func() bool { return adminOf(g.t, g).metric("anteroom_store_up 1") })
	}
}

// launch starts the program and reads its log.
func launch(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	return launchCommand(t, env, exec.Command(gatewayBinary, args...))
}

func launchCommand(t testing.TB, env []string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir = tempDir(t)
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = in, in
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadString('\n')
			p.mu.Lock()
			p.log.WriteString(line)
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		p.err = p.cmd.Wait()
		// A Redis of its own may hold the pipe open for a while longer.
		select {
		case <-read:
		case <-time.After(2 * time.Second):
		}
		_ = out.Close()
		close(p.ended)
	}()
	return p
}

// text is the log so far.
func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// line returns a field of the newest log line with a message.
func (p *process) line(message, field string) (string, bool) {
	var found string
	ok := false
	for l := range strings.Lines(p.text()) {
		var fields map[string]any
		if json.Unmarshal([]byte(l), &fields) == nil && fields["msg"] == message {
			found, ok = fmt.Sprint(fields[field]), true
		}
	}
	return found, ok
}

// ready waits until both sockets are announced.
func (g *gateway) ready() {
	g.t.Helper()
	until(g.t, "the gateway is listening", func() bool {
		select {
		case <-g.ended:
			g.t.Fatalf("the gateway ended: %v\n%s", g.err, g.text())
		default:
		}
		addr, one := g.line("listening", "addr")
		admin, two := g.line("admin listening", "addr")
		g.admin = admin
		if one && g.addr == "" {
			g.addr = addr
		}
		return one && two
	})
}

// rewrite replaces the configuration file.
func (g *gateway) rewrite(yaml string) {
	g.t.Helper()
	write(g.t, g.config, yaml)
}

func (g *gateway) signal(s os.Signal) {
	g.t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		g.t.Fatalf("signal %v: %v\n%s", s, err, g.text())
	}
}

// kill ends the program as a crash does.
func (g *gateway) kill() {
	g.t.Helper()
	g.signal(syscall.SIGKILL)
	g.wait()
}

// restart starts the program again on the same files; visitors find it at the same address.
func (g *gateway) restart() {
	g.t.Helper()
	g.past += g.process.text()
	g.process = launch(g.t, g.env, append(append([]string(nil), g.args...), "--listen", g.addr)...)
	g.ready()
	g.awaitStore()
}

// text is the log of all runs so far.
func (g *gateway) text() string { return g.past + g.process.text() }

// wait waits until the program has ended and returns its exit code, -1 for a signal.
func (p *process) wait() int {
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	return p.cmd.ProcessState.ExitCode()
}

// end asks the program to end.
func (g *gateway) end() {
	select {
	case <-g.ended:
	default:
		_ = g.cmd.Process.Signal(syscall.SIGTERM)
		if code := g.wait(); code != 0 {
			g.t.Errorf("after SIGTERM the gateway ended with %d, want 0\n%s", code, tail(g.text()))
		}
	}
	if g.dir == "" {
		return
	}
	// The last one out stops the embedded store, unless it was killed.
	if c := g.embedded(); c != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if c.Ping(ctx).Err() == nil {
			if g.cmd.ProcessState.ExitCode() >= 0 {
				g.t.Errorf("the embedded store outlives the gateway")
			}
			_ = c.ShutdownNoSave(ctx).Err()
		}
		_ = c.Close()
	}
}

// embedded returns a client of the gateway's own store, nil if its socket is missing.
func (g *gateway) embedded() *redis.Client {
	socket := filepath.Join(g.dir, "redis.sock")
	if _, err := os.Stat(socket); err != nil {
		return nil
	}
	return redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1, DisableIdentity: true})
}

// redisPID is the process id of the embedded store.
func (g *gateway) redisPID() int {
	g.t.Helper()
	c := g.embedded()
	if c == nil {
		g.t.Fatal("the embedded store has no socket")
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		g.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "process_id:")
	number, _, _ := strings.Cut(rest, "\r\n")
	pid, err := strconv.Atoi(number)
	if err != nil {
		g.t.Fatal(err)
	}
	return pid
}

// secret notes what must never be in the log.
func (g *gateway) secret(s string) {
	if len(s) < 8 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.secrets[s] = true
}

// ours are faults of the program.
var ours = regexp.MustCompile(`DATA RACE|(?m)^panic:|fault in a request|fatal error:|goroutine \d+ \[`)

// inspect reads the complete log.
func (g *gateway) inspect() {
	if g.process == nil {
		return
	}
	log := g.text()
	g.mu.Lock()
	defer g.mu.Unlock()
	for s := range g.secrets {
		if i := strings.Index(log, s); i >= 0 {
			g.t.Errorf("the log tells a secret: …%s…", log[max(0, i-200):min(len(log), i+60)])
			break
		}
	}
	if at := ours.FindStringIndex(log); at != nil {
		g.t.Errorf("the log tells of a fault of the program:\n%s", log[max(0, at[0]-500):min(len(log), at[1]+3000)])
	}
	if g.t.Failed() {
		g.t.Logf("the end of the log of %s:\n%s", g.addr, tail(log))
	}
}

func tail(s string) string {
	const most = 4000
	if len(s) <= most {
		return s
	}
	return "…" + s[len(s)-most:]
}

// command runs the program to its end and returns its output.
func command(t testing.TB, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, gatewayBinary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = tempDir(t)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// tempDir is like t.TempDir with a path that is short enough for a unix socket.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ar")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func write(t testing.TB, path, text string) {
	t.Helper()
	// In one step, as editors and Kubernetes do.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// until polls until done, and fails the test where that takes too long.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	within(t, patience, what, done)
}

func within(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	if !eventually(limit, done) {
		t.Fatalf("after %s it is still not so: %s", limit, what)
	}
}

// eventually asks less and less often, so that a long wait takes little of the time that others need.
func eventually(limit time.Duration, done func() bool) bool {
	began, pause := time.Now(), 10*time.Millisecond
	for !done() {
		if time.Since(began) > limit {
			return false
		}
		time.Sleep(pause)
		pause = min(200*time.Millisecond, pause*5/4)
	}
	return true
}
