package chart

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// binaries builds both programs as deploy/Containerfile does, and returns their directory. tools/chart.sh builds them first, so
// that the build does not count in a test's time.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(filepath.Join(root, "bin", "static"))
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/gateway", "./cmd/bulkworker")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // helm's warnings, for instance about values that a test gets wrong on purpose
	code := m.Run()
	var lines []string
	rendered.Range(func(name, objects any) bool {
		lines = append(lines, fmt.Sprintf("%s (%d objects)", name, objects))
		return true
	})
	slices.Sort(lines)
	if len(lines) > 0 {
		fmt.Println("rendered:", strings.Join(lines, ", "))
	}
	os.Exit(code)
}

func built(t *testing.T) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// mounted represents the files of a container, below a directory that replaces /etc/anteroom, and its environment.
type mounted struct {
	container core.Container
	dir       string
	env       []string
}

// mount writes a pod's volumes to a directory and resolves its environment, as the kubelet would.
func mount(t *testing.T, r *release, p pod) mounted {
	t.Helper()
	m := mounted{container: p.spec.Containers[0], dir: t.TempDir()}
	place := map[string]string{}
	for _, v := range m.container.VolumeMounts {
		place[v.Name] = m.here(v.MountPath)
	}
	for _, v := range p.spec.Volumes {
		if v.ConfigMap != nil {
			for _, c := range of[*core.ConfigMap](r) {
				for file, text := range c.Data {
					if c.Name == v.ConfigMap.Name {
						write(t, filepath.Join(place[v.Name], "..1", file), m.here(text))
					}
				}
			}
		} else {
			for _, source := range v.Projected.Sources {
				for _, item := range source.Secret.Items {
					write(t, filepath.Join(place[v.Name], "..1", item.Path), secretValue(t, r, source.Secret.Name, item.Key))
				}
			}
		}
		link(t, place[v.Name])
	}
	known := map[string]string{}
	for _, e := range m.container.Env {
		value := variable.ReplaceAllStringFunc(e.Value, func(use string) string { return known[variable.FindStringSubmatch(use)[1]] })
		if e.ValueFrom != nil {
			value = secretValue(t, r, e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key)
		}
		known[e.Name] = m.here(value)
		m.env = append(m.env, e.Name+"="+known[e.Name])
	}
	return m
}

// link publishes the first version of a volume as the kubelet does: all paths lead through the link ..data.
func link(t *testing.T, volume string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(volume, "..1"))
	if err != nil {
		t.Fatal(err)
	}
	symlink(t, "..1", filepath.Join(volume, "..data"))
	for _, e := range entries {
		symlink(t, filepath.Join("..data", e.Name()), filepath.Join(volume, e.Name()))
	}
}

// switchTo2 publishes a second version of a volume, as the kubelet does when a Secret has changed.
func switchTo2(t *testing.T, volume string) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(volume, "..2"), os.DirFS(filepath.Join(volume, "..1"))); err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(volume, "..data_tmp")
	symlink(t, "..2", next)
	if err := os.Rename(next, filepath.Join(volume, "..data")); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

func (m mounted) here(text string) string { return strings.ReplaceAll(text, "/etc/anteroom", m.dir) }

// args returns the container's arguments, with serve replaced.
func (m mounted) args(command string) []string {
	args := []string{command}
	for _, a := range m.container.Args[1:] {
		if a != "--store" {
			args = append(args, m.here(a))
		}
	}
	return args
}

func (m mounted) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(built(t), filepath.Base(m.container.Command[0])), args...)
	cmd.Env, cmd.Dir = m.env, m.dir
	return cmd
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// programs returns the pods of the programs, those of helm test included.
func programs(r *release) []pod {
	return slices.DeleteFunc(pods(r), func(p pod) bool { return p.spec.Containers[0].Name == "valkey" })
}

// TestProgramsTakeTheirConfiguration runs check-config for each pod of each example, with the pod's mounts and environment.
// Secrets come from those only.
func TestProgramsTakeTheirConfiguration(t *testing.T) {
	forExamples(t, func(t *testing.T, _ example, r *release) {
		for _, p := range programs(r) {
			m := mount(t, r, p)
			if out, err := m.command(t, m.args("check-config")...).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s\n%s", p.name, err, out, strings.Join(m.env, "\n"))
			}
			out, err := m.command(t, m.args("print-config")...).Output()
			if err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
			if !strings.Contains(string(out), "***@") {
				t.Errorf("%s has a store without a password:\n%s", p.name, out)
			}
		}
	})
}

// TestABadConfigurationIsFound checks that check-config, on which the previous test relies, refuses a wrong setting.
func TestABadConfigurationIsFound(t *testing.T) {
	r := render(t, override(t, "redis", `gateway: {config: {rooms: [{id: sale, origin: shop, queue: {absence: 1s}}]}}`))
	m := mount(t, r, programs(r)[0])
	if out, err := m.command(t, m.args("check-config")...).CombinedOutput(); err == nil || !strings.Contains(string(out), "absence") {
		t.Errorf("absence 1s: %v\n%s", err, out)
	}
}

// TestSecretsStayInSecrets checks that no value of a Secret appears in another object.
func TestSecretsStayInSecrets(t *testing.T) {
	forExamples(t, func(t *testing.T, _ example, r *release) {
		var values []string
		for _, p := range pods(r) {
			for _, reference := range references(t, p) {
				if parts := strings.Fields(reference); len(parts) == 3 && parts[0] == "Secret" {
					values = append(values, secretValue(t, r, parts[1], parts[2]))
				}
			}
		}
		if len(values) == 0 {
			t.Fatal("no pod has a secret")
		}
		for object, text := range r.texts {
			if _, ok := object.(*core.Secret); ok {
				continue
			}
			for _, value := range values {
				if value != "info" && strings.Contains(text, value) {
					t.Errorf("%q is in\n%s", value, text)
				}
			}
		}
	})
}

// ownEnd returns the seconds from SIGTERM to exit that the configuration allows a program.
func ownEnd(t *testing.T, r *release, program string) int64 {
	t.Helper()
	var config struct {
		ShutdownTimeout string `json:"shutdown_timeout"`
		Worker          struct {
			ShutdownGrace string `json:"shutdown_grace"`
		} `json:"worker"`
	}
	if err := yaml.Unmarshal([]byte(configMap(t, r, program+".yaml")), &config); err != nil {
		t.Fatal(err)
	}
	text := config.ShutdownTimeout
	if program == "bulkworker" {
		text = config.Worker.ShutdownGrace
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return int64(d.Seconds())
}

// secretValue returns a value of a Secret of the release, or of one made by the commands in the values file.
func secretValue(t *testing.T, r *release, name, key string) string {
	t.Helper()
	for _, s := range of[*core.Secret](r) {
		if value, ok := s.Data[key]; ok && s.Name == name {
			return string(value)
		}
	}
	switch key {
	case "ca", "ca.crt", "tls.crt":
		return certificate().cert
	case "tls.key":
		return certificate().key
	case "es1.pem":
		return certificate().key // a key of P-256
	case "ed1.pem":
		return edKey()
	case "url":
		return "redis://:a-password@redis.example:6379/2"
	case "smtp":
		return "smtp://user:a-password@mail.example:587"
	case "level":
		return "info"
	}
	sum := sha256.Sum256([]byte(name + " " + key))
	return hex.EncodeToString(sum[:])
}

type pair struct{ cert, key string }

var certificate = sync.OnceValue(func() pair {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop.example.com"}, DNSNames: []string{"shop.example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return pair{inPEM("CERTIFICATE", cert), inPEM("PRIVATE KEY", pkcs8(key))}
})

var edKey = sync.OnceValue(func() string {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return inPEM("PRIVATE KEY", pkcs8(key))
})

func pkcs8(key any) []byte {
	data, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return data
}

func inPEM(kind string, data []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
}

// TestTeamsCeilings_ReachTheProgram checks that the bulk worker reads the ceilings of a team's token. Helm writes the number of jobs
// as 2e+06.
func TestTeamsCeilings_ReachTheProgram(t *testing.T) {
	values := `
bulkworker:
  apiTokens:
    - {name: crm, tenants: [acme], secret: {name: anteroom-bulk, key: crm}, max_weight: 2.5, max_priority: normal, max_pending: 2000000, max_groups: 200}
    - {name: free, tenants: [acme], secret: {name: anteroom-bulk, key: free}}
`
	r := render(t, override(t, "cluster", values))
	i := slices.IndexFunc(programs(r), func(p pod) bool { return p.spec.Containers[0].Name == "bulkworker" })
	m := mount(t, r, programs(r)[i])
	var stderr strings.Builder
	cmd := m.command(t, m.args("print-config")...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var printed struct {
		Tokens []map[string]any `json:"api_tokens"`
	}
	if err := yaml.Unmarshal(out, &printed); err != nil || len(printed.Tokens) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, want := range []map[string]any{
		{"max_weight": 2.5, "max_priority": "normal", "max_pending": 2e6, "max_groups": 200.0},
		{"max_weight": 0.0, "max_priority": "", "max_pending": 0.0, "max_groups": 0.0},
	} {
		for name, value := range want {
			if printed.Tokens[i][name] != value {
				t.Errorf("%s of %s is %v, want %v", name, printed.Tokens[i]["name"], printed.Tokens[i][name], value)
			}
		}
	}
}
