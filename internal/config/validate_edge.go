package config

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/internal/redisurl"
	"github.com/anteroom/anteroom/internal/settings"
)

// edge checks the visitors' socket.
func (c gatewayChecker) edge() {
	c.listen("listen", c.cfg.Listen)
	c.tls("tls", c.cfg.TLS)
	if c.cfg.ProxyProtocol != "none" && len(c.cfg.TrustedProxies) == 0 {
		c.Add("proxy_protocol", "%q is taken from trusted_proxies only, which is empty; name the balancers there", settings.Clip(c.cfg.ProxyProtocol))
	}
	c.trustedHeader()
	if c.cfg.Limits.Target > c.cfg.Limits.Header {
		c.Add("limits.target", "%s is more than limits.header (%s), which holds the target too", c.cfg.Limits.Target, c.cfg.Limits.Header)
	}
	if n := len([]rune(c.cfg.Tokens.Issuer)); n == 0 || n > 200 {
		c.Add("tokens.issuer", "use 1 to 200 characters, the same in every gateway of this store")
	}
}

// tls checks the certificates of a socket.
func (c checker) tls(at string, t TLS) {
	switch {
	case t.CertFile != "" && t.KeyFile == "":
		c.Add(at+".key_file", "is missing; %s.cert_file needs the private key of its certificate", at)
	case t.CertFile == "" && t.KeyFile != "":
		c.Add(at+".cert_file", "is missing; %s.key_file needs its certificate", at)
	case t.CertFile != "":
		cert, certOK := c.file(at+".cert_file", t.CertFile)
		key, keyOK := c.file(at+".key_file", t.KeyFile)
		if certOK && keyOK {
			if _, err := tls.X509KeyPair(cert, key); err != nil {
				c.Add(at+".cert_file", "%q and %q are not a pair: %v", t.CertFile, t.KeyFile, err)
			}
		}
	case t.ClientCAFile != "":
		c.Add(at+".client_ca_file", "needs %s.cert_file and %s.key_file: without TLS nobody shows a certificate", at, at)
	}
	if t.ClientCAFile != "" {
		c.bundle(at+".client_ca_file", t.ClientCAFile)
	}
}

// forwardedFor is the default of trusted_header, in lower case.
const forwardedFor = "x-forwarded-for"

var addressHeader = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

func (c gatewayChecker) trustedHeader() {
	const at = "trusted_header"
	switch name := strings.ToLower(c.cfg.TrustedHeader); {
	case !addressHeader.MatchString(name):
		c.Add(at, "%q is not a header name of letters, digits and dashes; use X-Forwarded-For, Forwarded, X-Real-IP, CF-Connecting-IP or another that your proxy always writes", settings.Clip(c.cfg.TrustedHeader))
	case hasMeaning(name):
		c.Add(at, "%q does not name the visitor's address; use X-Forwarded-For, Forwarded, X-Real-IP, CF-Connecting-IP or another that your proxy always writes", c.cfg.TrustedHeader)
	case name != forwardedFor && len(c.cfg.TrustedProxies) == 0:
		c.Add(at, "%q is believed from trusted_proxies only, which is empty; name the networks of the proxy there", c.cfg.TrustedHeader)
	}
}

// cdnHeaders are written by content delivery networks, which do not connect from this machine.
var cdnHeaders = []string{"cf-connecting-ip", "true-client-ip", "fastly-client-ip", "fly-client-ip", "x-azure-clientip"}

// bundle checks a file of PEM certificates.
func (c checker) bundle(path, name string) {
	if data, ok := c.file(path, name); ok && !x509.NewCertPool().AppendCertsFromPEM(data) {
		c.Add(path, "%q holds no PEM certificate", name)
	}
}

// listen checks an address to listen on and returns its parts.
func (c checker) listen(path, address string) (host string, port int, ok bool) {
	host, text, err := net.SplitHostPort(address)
	if err != nil || !settings.AllDigits(text) {
		c.Add(path, "%q is not a listen address; use host:port or :port, such as 127.0.0.1:8080", settings.Clip(address))
		return "", 0, false
	}
	port, err = strconv.Atoi(text)
	if err != nil || port > 65535 {
		c.Add(path, "%q has no valid port; use 0 to 65535", settings.Clip(address))
		return "", 0, false
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && !hostPattern.MatchString(strings.ToLower(host)) {
		c.Add(path, "%q has no valid host; use an IP address, a name or nothing", settings.Clip(address))
		return "", 0, false
	}
	return host, port, true
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

func (c gatewayChecker) admin() {
	host, port, ok := c.listen("admin.listen", c.cfg.Admin.Listen)
	if ok && !isLoopback(host) && c.cfg.Admin.Token == "" && len(c.cfg.Admin.Tokens) == 0 && c.cfg.Admin.OIDC.Issuer == "" {
		c.Add("admin.token", "is missing; %q can be reached from other machines, so give a token (or admin.tokens, or admin.oidc), or listen on 127.0.0.1", c.cfg.Admin.Listen)
	}
	if visitors, visitorsPort, err := net.SplitHostPort(c.cfg.Listen); ok && err == nil && port != 0 && visitorsPort == strconv.Itoa(port) {
		if visitors == host || visitors == "" || host == "" {
			c.Add("admin.listen", "%q is the port of listen (%q); use another port for operators", c.cfg.Admin.Listen, c.cfg.Listen)
		}
	}
	c.people()
	c.bearer("admin.token", c.cfg.Admin.Token)
	names := make(map[string]bool)
	for i, t := range c.cfg.Admin.Tokens {
		path := settings.Element("admin.tokens", i)
		if t.Name != "" && names[t.Name] {
			c.Add(path+".name", "%q is there already; names are unique", settings.Clip(t.Name))
		}
		names[t.Name] = true
		c.roomIDs(path+".rooms", t.Rooms)
		if t.TokenFile == "" {
			c.Add(path+".token_file", "is missing; use the path of a file that holds the token")
			continue
		}
		data, ok := c.file(path+".token_file", t.TokenFile)
		if !ok {
			continue
		}
		if text := strings.TrimSpace(string(data)); text == "" {
			c.Add(path+".token_file", "%q is empty", t.TokenFile)
		} else {
			c.bearer(path+".token_file", text)
		}
	}
}

// roomIDs checks that the ids are of configured rooms.
func (c gatewayChecker) roomIDs(path string, ids []string) {
	for i, id := range ids {
		if !slices.ContainsFunc(c.cfg.Rooms, func(r Room) bool { return r.ID == id }) {
			c.Add(settings.Element(path, i), "%q is the id of no room; use the id of one under rooms, or leave rooms empty for all", settings.Clip(id))
		}
	}
}

var bearerPattern = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// bearer checks that a token can be sent in an Authorization header.
func (c checker) bearer(path, token string) {
	switch {
	case token == "":
	case token == settings.Mask:
		c.Add(path, "is the mask that print-config writes; give the real token")
	case !bearerPattern.MatchString(token):
		c.Add(path, "holds characters that a bearer token cannot have; use letters, digits and - . _ ~ + / with = at the end")
	}
}

var storePrefix = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

func (c checker) store(s Store) {
	if !storePrefix.MatchString(s.Prefix) {
		c.Add("store.prefix", "%q is not a prefix; use 1 to 32 letters, digits, dots, dashes and underscores", settings.Clip(s.Prefix))
	}
	if s.URL == "" {
		if s.Dir == "" {
			c.Add("store.dir", "is empty; the embedded store needs a directory (or give a store.url)")
		}
		return
	}
	c.storeURL("store.url", s.URL, s.Timeout)
}

// storeURL checks the URL of a store.
func (c checker) storeURL(path, url string, timeout time.Duration) {
	switch {
	case strings.Contains(url, settings.Mask) && redisurl.Mask(url) == url:
		c.Add(path, "holds the mask that print-config writes; give the real password")
	case timeout > 0: // else the bounds are reported
		client, err := redisurl.Open(url, timeout)
		if err != nil {
			c.Add(path, "%s", strings.TrimPrefix(err.Error(), "store.url "))
			return
		}
		// The client has not connected, so an error of Close means nothing.
		_ = client.Close()
	}
}
