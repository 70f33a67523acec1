package sdk

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	anteroom "github.com/anteroom/anteroom/sdk/go"
)

// call is a line of input for an SDK: requests for the verifier with an id, which the first call makes.
type call struct {
	ID         string    `json:"id"`
	Config     config    `json:"config"`
	Now        int64     `json:"now"`
	Requests   []request `json:"requests"`
	Concurrent bool      `json:"concurrent"`
}

type config struct {
	Issuer      string            `json:"issuer"`
	JWKSURL     string            `json:"jwks_url,omitempty"`
	RevokedURL  string            `json:"revoked_url,omitempty"`
	Secrets     map[string]string `json:"secrets,omitempty"`
	JWKS        json.RawMessage   `json:"jwks,omitempty"`
	AcceptBound bool              `json:"accept_bound,omitempty"`
}

type request struct {
	Room    string      `json:"room"`
	Headers [][2]string `json:"headers"`
}

type result struct {
	State   string `json:"state"`
	Reason  string `json:"reason"`
	Session string `json:"session"`
	Expires int64  `json:"expires"`
}

// driver verifies requests with an SDK.
type driver interface {
	verify(t *testing.T, c call) []result
}

// language is an SDK and the commands that run its tests.
type language struct {
	name     string
	needs    []string            // commands
	packages string              // of Debian
	vectors  func(string) string // command that runs the vectors; the argument is a directory for its files
	lines    func(string) string // command that reads calls
}

var languages = []language{
	{"go", []string{"go"}, "golang", func(string) string { return "cd ../../sdk/go && go test -count=1 -vet=off ." }, nil},
	{"node", []string{"node"}, "nodejs", func(string) string { return "node ../../sdk/node/verify.test.mjs" }, func(string) string { return "exec node ../../sdk/node/verify.test.mjs --lines" }},
	{"python", []string{"python3"}, "python3-cryptography", func(string) string { return python() + " ../../sdk/python/test_verify.py" }, func(string) string { return "exec " + python() + " ../../sdk/python/test_verify.py --lines" }},
	{"php", []string{"php"}, "php-cli", func(string) string { return "php ../../sdk/php/test_verify.php" }, func(dir string) string { return "exec php ../../sdk/php/test_verify.php --lines " + dir }},
	{"java", []string{"javac", "java"}, "default-jdk-headless", func(dir string) string {
		return "java -XX:TieredStopAtLevel=1 -Xshare:auto -cp " + classes() + " AnteroomTest ../../sdk/vectors.json"
	}, func(string) string {
		return "exec java -XX:TieredStopAtLevel=1 -Xshare:auto -cp " + classes() + " AnteroomTest --lines"
	}},
}

// python returns the interpreter that has the package cryptography.
var python = sync.OnceValue(func() string {
	for _, p := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(p, "-c", "import cryptography").Run() == nil {
			return p
		}
	}
	return ""
})

var classDir string

// classes compiles the Java SDK and returns the directory of its classes.
var classes = sync.OnceValue(func() string {
	if out, err := exec.Command("javac", "--release", "17", "-Xlint:all", "-d", classDir, "../../sdk/java/Anteroom.java", "../../sdk/java/AnteroomTest.java").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("javac: %v\n%s", err, out))
	}
	return classDir
})

func TestMain(m *testing.M) {
	var err error
	if classDir, err = os.MkdirTemp("", "sdk-java-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(classDir)
	os.Exit(code)
}

// require skips a language whose toolchain is missing.
func (l *language) require(t *testing.T) {
	t.Helper()
	for _, command := range l.needs {
		if _, err := exec.LookPath(command); err != nil {
			l.skip(t, command)
		}
	}
	if l.name == "python" && python() == "" {
		l.skip(t, "the Python package cryptography")
	}
}

func (l *language) skip(t *testing.T, missing string) {
	t.Helper()
	if os.Getenv("SDK_REQUIRED") != "" {
		t.Fatalf("%s: %s is missing: install %s", l.name, missing, l.packages)
	}
	t.Skipf("SKIPPED: the SDK for %s is not tested: %s is missing; install %s", l.name, missing, l.packages)
}

// start returns a driver of the language. PHP has several processes, because each serves one request at a time.
func (l *language) start(t *testing.T) driver {
	t.Helper()
	l.require(t)
	if l.lines == nil {
		return &inProcess{verifiers: map[string]*anteroom.Verifier{}}
	}
	processes, dir := 1, filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if l.name == "php" {
		processes = 4
	}
	var list []*process
	for range processes {
		list = append(list, startProcess(t, l.lines(dir)))
	}
	return &external{list}
}

type process struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startProcess(t *testing.T, command string) *process {
	t.Helper()
	cmd := exec.Command("bash", "-c", command)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil || t.Failed() && stderr.Len() > 0 {
			t.Logf("%s: %v\n%s", command, err, stderr.Bytes())
		}
	})
	return &process{in, bufio.NewReader(out)}
}

func (p *process) verify(c call) (results []result, err error) {
	line, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return results, json.Unmarshal(text, &results)
}

// external verifies requests in one process, and concurrent ones in all processes.
type external struct{ processes []*process }

func (e *external) verify(t *testing.T, c call) []result {
	t.Helper()
	if !c.Concurrent {
		results, err := e.processes[0].verify(c)
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	parts := make([][]result, len(e.processes))
	errs := make([]error, len(e.processes))
	var wg sync.WaitGroup
	share := len(c.Requests) / len(e.processes)
	for i, p := range e.processes {
		part := c
		part.Requests = c.Requests[i*share : (i+1)*share]
		wg.Go(func() { parts[i], errs[i] = p.verify(part) })
	}
	wg.Wait()
	var all []result
	for i := range parts {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		all = append(all, parts[i]...)
	}
	return all
}

// inProcess verifies requests with the SDK for Go.
type inProcess struct {
	verifiers map[string]*anteroom.Verifier
	mu        sync.Mutex
	now       int64
}

func (g *inProcess) clock() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Unix(g.now, 0)
}

func (g *inProcess) verify(t *testing.T, c call) []result {
	t.Helper()
	g.mu.Lock()
	g.now = c.Now
	g.mu.Unlock()
	v := g.verifiers[c.ID]
	if v == nil {
		var err error
		v, err = anteroom.New(anteroom.Config{Issuer: c.Config.Issuer, JWKSURL: c.Config.JWKSURL, RevokedURL: c.Config.RevokedURL, Secrets: c.Config.Secrets, JWKS: c.Config.JWKS,
			AcceptBound: c.Config.AcceptBound, Now: g.clock})
		if err != nil {
			t.Fatal(err)
		}
		g.verifiers[c.ID] = v
	}
	results := make([]result, len(c.Requests))
	one := func(i int) {
		r := &http.Request{Header: http.Header{}}
		for _, h := range c.Requests[i].Headers {
			r.Header.Add(h[0], h[1])
		}
		results[i] = result(v.Verify(r, c.Requests[i].Room))
	}
	var wg sync.WaitGroup
	for i := range c.Requests {
		if c.Concurrent {
			wg.Go(func() { one(i) })
		} else {
			one(i)
		}
	}
	wg.Wait()
	return results
}

// each runs a test for every language, in parallel.
func each(t *testing.T, test func(t *testing.T, l *language)) {
	for i := range languages {
		t.Run(languages[i].name, func(t *testing.T) {
			t.Parallel()
			test(t, &languages[i])
		})
	}
}
