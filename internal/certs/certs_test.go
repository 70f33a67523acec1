package certs

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/anteroom/anteroom/internal/config/configtest"
)

// pair writes a certificate and its key to files in dir.
func pair(t *testing.T, dir, name string) Files {
	t.Helper()
	certificate, key := configtest.SelfSigned(t)
	return Files{CertFile: file(t, dir, name+".crt", certificate), KeyFile: file(t, dir, name+".key", key)}
}

func file(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, f Files) *tls.Config {
	t.Helper()
	c, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFilesLoad_WithoutFilesIsNoTLS(t *testing.T) {
	if c, err := (Files{}).Load(); c != nil || err != nil {
		t.Errorf("Load() = %v, %v", c, err)
	}
}

func TestFilesLoad_NamesTheSettingAtFault(t *testing.T) {
	dir := t.TempDir()
	good, other := pair(t, dir, "good"), pair(t, dir, "other")
	broken, missing := file(t, dir, "broken", "no PEM"), filepath.Join(dir, "missing")
	for name, row := range map[string]struct {
		files Files
		want  string
	}{
		"no key":            {Files{CertFile: good.CertFile}, "tls: cert_file and key_file are needed together"},
		"no certificate":    {Files{KeyFile: good.KeyFile}, "tls: cert_file and key_file are needed together"},
		"only clients":      {Files{ClientCAFile: good.CertFile}, "tls: cert_file and key_file are needed together"},
		"missing":           {Files{CertFile: missing, KeyFile: good.KeyFile}, `tls: cert_file "` + missing + `", key_file "` + good.KeyFile + `": open `},
		"broken":            {Files{CertFile: broken, KeyFile: good.KeyFile}, "failed to find any PEM data"},
		"key of another":    {Files{CertFile: good.CertFile, KeyFile: other.KeyFile}, "private key does not match public key"},
		"missing client CA": {Files{good.CertFile, good.KeyFile, missing}, "tls.client_ca_file: open "},
		"broken client CA":  {Files{good.CertFile, good.KeyFile, broken}, `tls.client_ca_file: "` + broken + `" holds no PEM certificate`},
	} {
		if c, err := row.files.Load(); c != nil || err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: Load() = %v, %v; want the error %q", name, c, err, row.want)
		}
	}
}

// serve accepts handshakes with whatever current returns and returns the address.
func serve(t *testing.T, current func() *tls.Config) string {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln, ended := Listener(plain, current), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if c.(*tls.Conn).HandshakeContext(t.Context()) == nil {
				_, _ = c.Write([]byte{'.'})
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-ended
	})
	return ln.Addr().String()
}

// handshake returns the certificate that a client is shown. The byte that the server sends proves that it accepted the client.
func handshake(addr string, own ...tls.Certificate) (*x509.Certificate, error) {
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, Certificates: own})
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates[0], nil
}

func TestListener_ServesReplacedFilesAndKeepsTheOldOnesWhileTheNewAreBroken(t *testing.T) {
	dir := t.TempDir()
	files := pair(t, dir, "site")
	var current atomic.Pointer[tls.Config]
	current.Store(load(t, files))
	addr := serve(t, current.Load)
	shown := func() string {
		t.Helper()
		got, err := handshake(addr)
		if err != nil {
			t.Fatal(err)
		}
		return string(got.Raw)
	}
	// reload does what a program does: it takes what loads.
	reload := func() error {
		next, err := files.Load()
		if err == nil {
			current.Store(next)
		}
		return err
	}
	first := shown()

	file(t, dir, "site.crt", "half a cert")
	if err := reload(); err == nil {
		t.Fatal("a broken certificate was loaded")
	}
	if shown() != first {
		t.Error("another certificate after a reload that failed")
	}

	pair(t, dir, "site")
	if shown() != first {
		t.Error("another certificate before the reload")
	}
	if err := reload(); err != nil {
		t.Fatal(err)
	}
	if shown() == first {
		t.Error("the old certificate after the reload")
	}
}

func TestListener_RequiresAClientCertificateOfClientCA(t *testing.T) {
	dir := t.TempDir()
	files, client, stranger := pair(t, dir, "site"), pair(t, dir, "client"), pair(t, dir, "stranger")
	files.ClientCAFile = client.CertFile
	config := load(t, files)
	addr := serve(t, func() *tls.Config { return config })
	if _, err := handshake(addr); err == nil {
		t.Error("a client without a certificate was accepted")
	}
	if _, err := handshake(addr, load(t, stranger).Certificates...); err == nil {
		t.Error("a client with another authority's certificate was accepted")
	}
	if _, err := handshake(addr, load(t, client).Certificates...); err != nil {
		t.Errorf("the client of client_ca_file was refused: %v", err)
	}
}
