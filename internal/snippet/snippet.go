package snippet

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"text/template"

	"github.com/anteroom/anteroom/internal/config"
)

//go:embed texts
var texts embed.FS

// Options are the flags of the command.
type Options struct {
	Proxy    string   // one of Proxies
	Room     string   // print the hosts of this room only; empty: of all rooms
	Check    []string // addresses of checks instead of check.listen
	Visitors []string // addresses of the visitors' sockets instead of listen
	Origin   string   // URL of the site instead of the first origin
	Open     bool     // requests pass while no gateway answers
	Lua      bool     // HAProxy: print the file of lua-load
	Verify   string   // HAProxy verifies passes with the public key in this file and sends no checks; empty: it sends checks
	// PassCookie returns the name of a room's cookie for passes, on a site with TLS or without.
	PassCookie func(room string, secure bool) string
}

// proxy is a proxy for which configuration is printed.
type proxy struct {
	name    string
	dialect string // the value of check.dialect that it needs
	one     bool   // it takes only one address for checks
	page    bool   // it sends visitors who have to wait to the visitors' socket, which needs check.deny: 401
	grpc    bool   // it asks over gRPC if check.grpc is set
	closed  string // the reason why it has no open mode; empty: it has one
}

var proxies = []proxy{
	{name: "nginx", dialect: "nginx", page: true},
	{name: "traefik", dialect: "traefik", one: true, closed: "Traefik's forwardAuth refuses every request while the check is away"},
	{name: "caddy", dialect: "caddy"},
	{name: "envoy", dialect: "envoy", grpc: true},
	{name: "envoy-gateway", dialect: "gateway-api", one: true, grpc: true},
	{name: "gateway-api", dialect: "gateway-api", one: true, closed: "the Gateway API demands that ExternalAuth refuses every request while the check is away"},
	{name: "haproxy", dialect: "haproxy", page: true},
}

// Proxies returns the names of the proxies.
func Proxies() []string {
	names := make([]string, len(proxies))
	for i, p := range proxies {
		names[i] = p.name
	}
	return names
}

// Write prints the configuration of a proxy.
func Write(w io.Writer, cfg *config.Config, o Options) error {
	i := slices.IndexFunc(proxies, func(p proxy) bool { return p.name == o.Proxy })
	if i < 0 {
		return fmt.Errorf("there is no configuration for %q; use one of %s", o.Proxy, strings.Join(Proxies(), ", "))
	}
	p := proxies[i]
	fit := fits
	if o.Verify != "" {
		fit = verifies
	}
	if err := errors.Join(fit(cfg, &p, &o), reaches(cfg)); err != nil {
		return err
	}
	d, err := collect(cfg, &p, &o)
	if err != nil {
		return err
	}
	if p.one && len(d.Check) > 1 {
		return fmt.Errorf("--check: %s takes one address for checks, not %d; name a service or balancer in front of all gateways", p.name, len(d.Check))
	}
	file := p.name
	switch {
	case o.Lua:
		file = "haproxy-lua"
	case o.Verify != "":
		file = "haproxy-verify"
		if d.Verify, err = verificationOf(cfg, &o, d); err != nil {
			return err
		}
	}
	return pages.ExecuteTemplate(w, file+".tmpl", d)
}

var pages = template.Must(template.New("").Funcs(template.FuncMap{"join": join, "list": list, "quoted": quoted, "names": serverNames, "sites": sites, "rule": rule, "service": service, "port": port}).
	ParseFS(texts, "texts/*.tmpl"))

// overGRPC reports whether the proxy is to ask over gRPC, which needs no lists of fields.
func overGRPC(cfg *config.Config, p *proxy) bool { return p.grpc && cfg.Check.GRPC != "" }

// fits returns errors about settings and flags that do not fit the proxy.
func fits(cfg *config.Config, p *proxy, o *Options) error {
	var list []error
	over := overGRPC(cfg, p)
	if cfg.Check.Listen == "" && !over {
		list = append(list, errors.New("check.listen: is empty, so the gateway answers no checks of this proxy; set it to an address such as 127.0.0.1:8085, and check.trusted to that of the proxy"))
	} else if !over && cfg.Check.Dialect != p.dialect {
		list = append(list, fmt.Errorf("check.dialect: %q does not describe requests as %s does; set it to %s", cfg.Check.Dialect, p.name, p.dialect))
	}
	if p.page && cfg.Check.Listen != "" && cfg.Check.Deny != 401 {
		list = append(list, fmt.Errorf("check.deny: %d cannot be told from a refused check or an absent gateway; set it to 401 (visitors who have to wait get page.status from the visitors' socket)", cfg.Check.Deny))
	}
	for _, p := range cfg.Check.Trusted {
		if !slices.ContainsFunc(cfg.TrustedProxies, func(t netip.Prefix) bool { return t.Bits() <= p.Bits() && t.Contains(p.Addr()) }) {
			list = append(list, fmt.Errorf("trusted_proxies: lacks %s of check.trusted, so the visitors' socket would ignore the address and scheme that the proxy sends, and its cookies would have other names; add it", p))
		}
	}
	if o.Open && p.closed != "" {
		list = append(list, fmt.Errorf("--open: %s; leave the flag out", p.closed))
	}
	if o.Lua && p.name != "haproxy" {
		list = append(list, fmt.Errorf("--lua: %s loads no Lua file; leave the flag out", p.name))
	}
	return errors.Join(list...)
}

// reaches returns errors about settings with which the visitors' socket cannot read what the proxy sends.
func reaches(cfg *config.Config) error {
	var list []error
	if cfg.TrustedHeader != "X-Forwarded-For" {
		list = append(list, fmt.Errorf("trusted_header: %q is not the header in which the printed configuration names the visitor; set it to X-Forwarded-For", cfg.TrustedHeader))
	}
	if cfg.TLS.CertFile != "" {
		list = append(list, errors.New("tls.cert_file: the visitors' socket uses TLS, but the proxy reaches it without; remove the setting, since the proxy has the certificate"))
	}
	if cfg.ProxyProtocol != "none" {
		list = append(list, fmt.Errorf("proxy_protocol: %q expects a header that the printed configuration does not send; set it to none", cfg.ProxyProtocol))
	}
	return errors.Join(list...)
}

// data holds the values for the templates.
type data struct {
	Hosts    []string // of the rooms
	Rooms    []string // ids
	Cookies  []string // of passes
	Check    []string // host:port
	Visitors []string
	Origin   *url.URL
	Open     bool
	GRPC     bool // checks are sent over gRPC
	// Ending has the rooms whose sessions end after session.ttl if the proxy sends no renewed pass to visitors.
	Ending []string
	Verify *verification
}

func collect(cfg *config.Config, p *proxy, o *Options) (*data, error) {
	d := &data{Open: o.Open, GRPC: overGRPC(cfg, p)}
	for i := range cfg.Rooms {
		r := &cfg.Rooms[i]
		if o.Room != "" && r.ID != o.Room {
			continue
		}
		d.Rooms = append(d.Rooms, r.ID)
		d.Cookies = append(d.Cookies, o.PassCookie(r.ID, true), o.PassCookie(r.ID, false))
		if r.Session.Renew != "server" {
			d.Ending = append(d.Ending, r.ID)
		}
		for _, host := range r.Hosts {
			if !slices.Contains(d.Hosts, host) {
				d.Hosts = append(d.Hosts, host)
			}
		}
	}
	switch {
	case len(d.Rooms) == 0 && o.Room != "":
		return nil, fmt.Errorf("--room: no room has the id %q", o.Room)
	case len(d.Rooms) == 0:
		return nil, errors.New("rooms: is empty, so there are no requests to ask about; add a room")
	case slices.Contains(d.Hosts, "*"):
		d.Hosts = []string{"*"}
	}
	var faults [3]error
	switch {
	case o.Verify != "":
	case d.GRPC:
		d.Check, faults[0] = addresses("check.grpc", "--check", cfg.Check.GRPC, o.Check)
	default:
		d.Check, faults[0] = addresses("check.listen", "--check", cfg.Check.Listen, o.Check)
	}
	d.Visitors, faults[1] = addresses("listen", "--visitors", cfg.Listen, o.Visitors)
	d.Origin, faults[2] = origin(cfg, o.Origin)
	return d, errors.Join(faults[:]...)
}

// origin returns the address of the site.
func origin(cfg *config.Config, flag string) (*url.URL, error) {
	address := flag
	switch {
	case address != "":
	case len(cfg.Origins) > 0 && len(cfg.Origins[0].Servers) > 0:
		address = cfg.Origins[0].Servers[0]
	default:
		address = "http://127.0.0.1:9000"
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || u.Port() == "" || u.Path != "" {
		return nil, fmt.Errorf("--origin: %q is not an address such as http://host:port", address)
	}
	return u, nil
}
