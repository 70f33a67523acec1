package redisurl

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

type kind int

const (
	single kind = iota
	socket
	sentinel
	cluster
)

// target is a parsed store URL.
type target struct {
	kind  kind
	addrs []string // host:port each, or the path of the one socket
	user  string
	pass  string
	db    int

	master       string // sentinel's name for the master
	sentinelUser string
	sentinelPass string

	tls        bool
	caFile     string
	certFile   string
	keyFile    string
	serverName string
}

const schemes = "redis://, rediss://, unix://, redis-sentinel:// or redis-cluster://"

// parse reads a store URL. Its errors do not hold the URL: the caller adds it, masked.
func parse(raw string) (target, error) {
	var t target
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return t, fmt.Errorf("is not a URL; it starts with %s", schemes)
	}
	port := "6379"
	var params []string
	switch scheme {
	case "redis":
		params = []string{"db"}
	case "rediss":
		t.tls = true
		params = []string{"db", "ca_file", "cert_file", "key_file", "server_name"}
	case "unix":
		t.kind = socket
		params = []string{"db"}
	case "redis-sentinel":
		t.kind, port = sentinel, "26379"
		params = []string{"db", "tls", "sentinel_user", "sentinel_password", "ca_file", "cert_file", "key_file", "server_name"}
	case "redis-cluster":
		t.kind = cluster
		params = []string{"tls", "ca_file", "cert_file", "key_file", "server_name"}
	default:
		return t, fmt.Errorf("has an unknown scheme; it starts with %s", schemes)
	}
	if i := strings.IndexFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' }); i >= 0 {
		return t, fmt.Errorf("has a blank, a control or an invalid character at byte %d; percent-encode it", i)
	}
	if strings.Contains(rest, "#") {
		return t, fmt.Errorf("has a #; in a password write %%23")
	}
	rest, rawQuery, _ := strings.Cut(rest, "?")

	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	if strings.Contains(path, "@") && t.kind != socket {
		return t, fmt.Errorf("has an @ behind the first /; in a password write / as %%2F and @ as %%40")
	}
	hosts := authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		hosts = authority[i+1:]
		if err := t.userInfo(authority[:i]); err != nil {
			return t, err
		}
	}
	if err := t.hosts(hosts, path, port); err != nil {
		return t, err
	}
	if err := t.path(path); err != nil {
		return t, err
	}
	if err := t.query(rawQuery, params); err != nil {
		return t, err
	}
	return t, t.checkTLS()
}

func (t *target) userInfo(text string) error {
	user, pass, _ := strings.Cut(text, ":")
	var err error
	if t.user, err = url.PathUnescape(user); err != nil {
		return fmt.Errorf("has a bad percent-encoding in the user; write %% as %%25")
	}
	if t.pass, err = url.PathUnescape(pass); err != nil {
		return fmt.Errorf("has a bad percent-encoding in the password; write %% as %%25")
	}
	if t.user != "" && t.pass == "" {
		return fmt.Errorf("names a user without a password; a password alone is written as :password@")
	}
	return nil
}

func (t *target) hosts(list, path, port string) error {
	if t.kind == socket {
		if list != "" {
			return fmt.Errorf("names a host; a socket is written as unix:///absolute/path")
		}
		p, err := url.PathUnescape(path)
		if err != nil || len(p) < 2 || strings.ContainsRune(p, 0) {
			return fmt.Errorf("names no socket; it is written as unix:///absolute/path")
		}
		if most := len(unix.RawSockaddrUnix{}.Path) - 1; len(p) > most {
			return fmt.Errorf("has a socket path of %d bytes; this system takes %d", len(p), most)
		}
		t.addrs = []string{p}
		return nil
	}
	for h := range strings.SplitSeq(list, ",") {
		addr, err := hostPort(h, port)
		if err != nil {
			return err
		}
		if slices.Contains(t.addrs, addr) {
			return fmt.Errorf("names the host %s twice", addr)
		}
		t.addrs = append(t.addrs, addr)
	}
	if t.kind == single && len(t.addrs) > 1 {
		return fmt.Errorf("names %d hosts; several are for redis-sentinel:// and redis-cluster://", len(t.addrs))
	}
	return nil
}

// hostBytes are the characters of a host name or an address.
const hostBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:"

// hostPort completes host, host:port, [v6] or [v6]:port.
func hostPort(text, port string) (string, error) {
	host := text
	if strings.HasPrefix(text, "[") {
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return "", fmt.Errorf("has an IPv6 address without its ]")
		}
		host = text[1:end]
		if net.ParseIP(host) == nil || !strings.Contains(host, ":") {
			return "", fmt.Errorf("has something other than an IPv6 address in [ ]")
		}
		if rest := text[end+1:]; rest != "" {
			p, ok := strings.CutPrefix(rest, ":")
			if !ok {
				return "", fmt.Errorf("has something other than a port behind ]")
			}
			port = p
		}
	} else if i := strings.IndexByte(text, ':'); i >= 0 {
		host, port = text[:i], text[i+1:]
		if strings.Contains(port, ":") {
			return "", fmt.Errorf("has a host with several colons; an IPv6 address is written in [ ]")
		}
	}
	if host == "" {
		return "", fmt.Errorf("names no host, or an empty one between commas")
	}
	if bad := strings.Trim(host, hostBytes); bad != "" {
		return "", fmt.Errorf("has %q in a host name; if it belongs to the password, percent-encode it", bad[0])
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("has a bad port; ports go from 1 to 65535")
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

func (t *target) path(path string) error {
	if t.kind == socket {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if t.kind == sentinel {
		name, err := url.PathUnescape(parts[0])
		if err != nil || name == "" {
			return fmt.Errorf("does not name the master; it is written as redis-sentinel://h1,h2,h3/master")
		}
		t.master, parts = name, parts[1:]
	}
	if len(parts) == 0 || (len(parts) == 1 && parts[0] == "") {
		return nil
	}
	if t.kind == cluster {
		return fmt.Errorf("names a database; a cluster has only one, leave out what is behind the hosts")
	}
	if len(parts) > 1 {
		return fmt.Errorf("has too many parts behind the host; one number, the database, may stand there")
	}
	return t.database(parts[0])
}

func (t *target) database(text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("has a database that is not a number from 0")
	}
	t.db = int(n)
	return nil
}

func (t *target) query(raw string, known []string) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return fmt.Errorf("has a query that cannot be read; percent-encode what is not a letter or digit")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("has a query parameter that is not known here; known are %s", strings.Join(known, ", "))
		}
		if len(values[name]) > 1 {
			return fmt.Errorf("has the query parameter %s twice", name)
		}
		v := values[name][0]
		switch name {
		case "db":
			if t.db != 0 {
				return fmt.Errorf("names the database twice, in the path and as db")
			}
			if err := t.database(v); err != nil {
				return err
			}
		case "tls":
			if t.tls, err = strconv.ParseBool(v); err != nil {
				return fmt.Errorf("has a tls that is neither 1 nor 0")
			}
		case "sentinel_user":
			t.sentinelUser = v
		case "sentinel_password":
			t.sentinelPass = v
		case "ca_file":
			t.caFile = v
		case "cert_file":
			t.certFile = v
		case "key_file":
			t.keyFile = v
		case "server_name":
			t.serverName = v
		}
	}
	return nil
}

func (t *target) checkTLS() error {
	if !t.tls && (t.caFile != "" || t.certFile != "" || t.keyFile != "" || t.serverName != "") {
		return fmt.Errorf("has TLS files or a server_name without tls=1")
	}
	if (t.certFile == "") != (t.keyFile == "") {
		return fmt.Errorf("has only one of cert_file and key_file; a client certificate needs both")
	}
	return nil
}

// Mask returns a URL without passwords, for logs. It also masks malformed URLs.
func Mask(raw string) string {
	head, rest := "", raw
	if scheme, after, ok := strings.Cut(raw, "://"); ok && !strings.ContainsAny(scheme, "@:/?# ") {
		head, rest = scheme+"://", after
	}
	// The last @: a password that was not encoded may contain @, / and ?.
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, _, hasPass := strings.Cut(rest[:i], ":")
		if !hasPass || strings.ContainsAny(user, "@/?#") {
			user = ""
		} else {
			user += ":"
		}
		rest = user + "***" + rest[i:]
	}
	main, query, ok := strings.Cut(rest, "?")
	if !ok {
		return head + rest
	}
	params := strings.Split(query, "&")
	for i, p := range params {
		// Only known harmless parameters are shown: a misspelt name may carry a password.
		name, _, hasValue := strings.Cut(p, "=")
		if hasValue && !slices.Contains([]string{"db", "tls", "ca_file", "cert_file", "key_file", "server_name", "sentinel_user"}, name) {
			params[i] = name + "=***"
		}
	}
	return head + main + "?" + strings.Join(params, "&")
}
