// Package certs serves TLS by certificates in files, which a reload may replace.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// Files name a certificate chain, its private key and the authorities of clients, all PEM. The zero value means no TLS.
type Files struct{ CertFile, KeyFile, ClientCAFile string }

// Load reads the files; nil without any. Its errors name the setting under tls that is at fault.
func (f Files) Load() (*tls.Config, error) { return f.LoadFor("tls") }

// LoadFor is Load for the files of another section of the configuration.
func (f Files) LoadFor(section string) (*tls.Config, error) {
	if f == (Files{}) {
		return nil, nil
	}
	if f.CertFile == "" || f.KeyFile == "" {
		return nil, fmt.Errorf("%s: cert_file and key_file are needed together", section)
	}
	cert, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: cert_file %q, key_file %q: %w", section, f.CertFile, f.KeyFile, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{cert}}
	if f.ClientCAFile != "" {
		pem, err := os.ReadFile(f.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("%s.client_ca_file: %w", section, err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.client_ca_file: %q holds no PEM certificate", section, f.ClientCAFile)
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// Listener wraps ln in TLS with the files that are current when a client connects.
func Listener(ln net.Listener, current func() *tls.Config) net.Listener {
	return tls.NewListener(ln, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current(), nil },
	})
}
