package redisurl

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

const patience = time.Minute

func open(t *testing.T, rawURL string) redis.UniversalClient {
	t.Helper()
	c, err := Open(rawURL, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestOpen_ReachesEachKindOfStore(t *testing.T) {
	own := redistest.Server(t)
	if err := own.Client().Do(t.Context(), "ACL", "SETUSER", "ann", "on", ">p/w?", "~*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	for name, u := range map[string]string{
		"tcp":          "redis://" + own.Addr() + "/2",
		"socket":       own.URL() + "?db=2",
		"user":         "redis://ann:p%2Fw%3F@" + own.Addr() + "/2",
		"socket, user": "unix://ann:p%2Fw%3F@" + own.Socket() + "?db=2",
		"cluster":      "redis-cluster://" + redistest.ClusterAddr(t),
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, u)
			if got, err := c.Set(t.Context(), "k:"+name, "v", 0).Result(); err != nil || got != "OK" {
				t.Fatalf("%s, %v", got, err)
			}
			if err := CheckServer(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		})
	}
	if n, err := own.Client().DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Fatalf("database 0 holds %d keys, %v; the URLs named database 2", n, err)
	}
	if err := open(t, "redis://ann:wrong@"+own.Addr()).Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Fatalf("with a wrong password: %v", err)
	}
}

// TestOpen_FollowsAFailover: the URL names the sentinel alone, and leads to the new master when the old one dies.
func TestOpen_FollowsAFailover(t *testing.T) {
	short.Skip(t, "waits for the clock")
	master := redistest.Server(t)
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Server(t, "--replicaof", host, port)
	sentinel := redistest.Sentinel(t, "tickets", master)
	c, err := Open("redis-sentinel://"+sentinel.Addr()+"/tickets", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })

	eventually(t, func() error { // the sentinel finds the replica through the master
		n, err := sentinel.Client().Do(t.Context(), "SENTINEL", "REPLICAS", "tickets").Slice()
		if err == nil && len(n) != 1 {
			err = fmt.Errorf("%d replicas known", len(n))
		}
		return err
	})
	eventually(t, func() error { return c.Set(t.Context(), "k", "v", 0).Err() })
	eventually(t, func() error { return replica.Client().Get(t.Context(), "k").Err() })
	master.Kill()
	eventually(t, func() error { return c.Set(t.Context(), "k", "after", 0).Err() })
	if got, err := replica.Client().Get(t.Context(), "k").Result(); err != nil || got != "after" {
		t.Fatalf("the promoted replica holds %q, %v", got, err)
	}
}

// eventually polls until f is nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.NewTimer(6 * patience) // a failover on a busy machine
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

func TestOpen_VerifiesTLS(t *testing.T) {
	ca, cert, key := certificate(t)
	own := redistest.Server(t)
	admin := own.Client()
	for _, kv := range [][2]string{{"tls-cert-file", cert}, {"tls-key-file", key}, {"tls-ca-cert-file", ca}} {
		if err := admin.ConfigSet(t.Context(), kv[0], kv[1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	port := ""
	for range 10 {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		_ = l.Close()
		if err = admin.ConfigSet(t.Context(), "tls-port", port).Err(); err == nil {
			break
		}
		t.Logf("port %s: %v", port, err)
		port = ""
	}
	if port == "" {
		t.Fatal("the server took no port for TLS")
	}

	base := "rediss://127.0.0.1:" + port + "?ca_file=" + url.QueryEscape(ca)
	clientCert := "&cert_file=" + url.QueryEscape(cert) + "&key_file=" + url.QueryEscape(key)
	if err := open(t, base+clientCert).Ping(t.Context()).Err(); err != nil {
		t.Fatalf("with both certificates: %v", err)
	}
	if err := open(t, base).Ping(t.Context()).Err(); err == nil {
		t.Fatal("the server took a client without a certificate")
	}
	if err := open(t, base+clientCert+"&server_name=other.example").Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "other.example") {
		t.Fatalf("for another name: %v", err)
	}
	if err := open(t, "rediss://127.0.0.1:"+port).Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Fatalf("of an unknown authority: %v", err)
	}
}

// certificate writes a self-signed certificate for 127.0.0.1, which is its own authority.
func certificate(t *testing.T) (ca, cert, key string) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &priv.PublicKey, priv)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, cert, key
}

func TestOpen_ConnectsAtTheFirstCommand(t *testing.T) {
	for _, u := range []string{"redis://127.0.0.1:1", "unix:///does/not/exist", "redis-cluster://127.0.0.1:1", "redis-sentinel://127.0.0.1:1/m"} {
		c, err := Open(u, 100*time.Millisecond)
		if err != nil {
			t.Fatalf("%s: %v", u, err)
		}
		if err := c.Ping(t.Context()).Err(); err == nil {
			t.Errorf("%s: something answers", u)
		}
		if err := CheckServer(t.Context(), c); err == nil || errors.Is(err, ErrUnsuitable) {
			t.Errorf("%s: a store that does not answer is %v", u, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: close: %v", u, err)
		}
	}
}

func TestOpen_GivesUpAStoreThatHangs(t *testing.T) {
	own := redistest.Server(t)
	c, err := Open(own.URL(), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	eventually(t, func() error { return c.Ping(t.Context()).Err() })
	own.Stop()
	defer own.Cont()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Fatal("by the timeout: a stopped server answers")
	}
	slow := open(t, own.URL())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := slow.Ping(ctx).Err(); !errors.Is(err, context.DeadlineExceeded) && !os.IsTimeout(err) {
		t.Fatalf("by the context: %v", err)
	}
}

func TestCheckVersionAndPolicy_RefusesOldServersAndEviction(t *testing.T) {
	for _, row := range []struct{ version, policy, want string }{
		{"7.0.15", "noeviction", ""},
		{"8.2.1", "noeviction", ""},
		{"10.0.0", "noeviction", ""},
		{"", "", ""},
		{"7.2.4", "", ""},
		{"6.2.14", "noeviction", "it is Redis 6.2.14; install Redis 7 or later, or Valkey"},
		{"7.0.0", "allkeys-lru", "maxmemory-policy is allkeys-lru"},
		{"7.0.0", "volatile-ttl", "set it to noeviction"},
	} {
		err := checkVersionAndPolicy(row.version, row.policy)
		if row.want == "" && err != nil || row.want != "" && (!errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s, %s: got %v, want %q", row.version, row.policy, err, row.want)
		}
	}
}

func TestCheckServer_RefusesEvictionUnlessItCannotBeRead(t *testing.T) {
	own := redistest.Server(t)
	admin := own.Client()
	if err := CheckServer(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	if err := admin.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "noinfo", "on", ">p", "~*", "+@all", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "nothing", "on", ">p", "~*", "+@all", "-info", "-config").Err(); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		user    string
		refused bool
	}{{"", true}, {"noinfo:p@", true}, {"nothing:p@", false}} {
		err := CheckServer(t.Context(), open(t, "unix://"+row.user+own.Socket()))
		if errors.Is(err, ErrUnsuitable) != row.refused || (!row.refused && err != nil) {
			t.Errorf("as %q: %v, to be refused: %t", row.user, err, row.refused)
		}
	}
}

func TestClientLog_WritesAtDebug(t *testing.T) {
	var out bytes.Buffer
	clientLog{slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}.Printf(t.Context(), "pool %d", 3)
	if !strings.Contains(out.String(), `msg="store client" said="pool 3"`) {
		t.Fatalf("logged %q", out.String())
	}
	out.Reset()
	clientLog{slog.New(slog.NewTextHandler(&out, nil))}.Printf(t.Context(), "pool %d", 3)
	if out.Len() != 0 {
		t.Fatalf("logged %q at info", out.String())
	}
}

func ExampleMask() {
	fmt.Println(Mask("redis://shop:secret@10.0.0.7:6379/1"))
	// Output: redis://shop:***@10.0.0.7:6379/1
}
