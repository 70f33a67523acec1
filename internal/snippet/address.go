package snippet

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// addresses returns the addresses at which the proxy reaches a socket: those of a flag, or the one of a setting. In a setting without a host
// the host becomes the loopback address.
func addresses(setting, flag, listen string, flags []string) ([]string, error) {
	for _, address := range flags {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" || port == "" || strings.ContainsAny(address, " \t\r\n;{}\"'`\\") {
			return nil, fmt.Errorf("%s: %q is not an address such as 10.0.0.5:8085", flag, address)
		}
	}
	if len(flags) > 0 {
		return flags, nil
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		return nil, fmt.Errorf("%s: %q does not name the port that the proxy has to reach; choose one, or use %s", setting, listen, flag)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return []string{net.JoinHostPort(host, port)}, nil
}

// join puts before and after around each element and separates the results by blanks.
func join(list []string, before, after string) string {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = before + s + after
	}
	return strings.Join(parts, " ")
}

// list separates elements by commas.
func list(elements []string) string { return strings.Join(elements, ", ") }

// quoted separates elements in double quotes by commas.
func quoted(elements []string) string { return `"` + strings.Join(elements, `", "`) + `"` }

// serverNames returns hosts in the form of nginx.
func serverNames(hosts []string) string {
	if hosts[0] == "*" {
		return "_"
	}
	return strings.Join(hosts, " ")
}

// sites returns hosts in the form of a Caddyfile.
func sites(hosts []string) string {
	if hosts[0] == "*" {
		return ":80"
	}
	return strings.Join(hosts, ", ")
}

// rule returns hosts in the form of a rule of Traefik.
func rule(hosts []string) string {
	parts := make([]string, len(hosts))
	for i, host := range hosts {
		switch domain, ok := strings.CutPrefix(host, "*."); {
		case host == "*":
			parts[i] = "PathPrefix(`/`)"
		case ok:
			parts[i] = "HostRegexp(`^.+\\\\." + strings.ReplaceAll(domain, ".", "\\\\.") + "$`)" // the template has the rule in double quotes
		default:
			parts[i] = "Host(`" + host + "`)"
		}
	}
	return strings.Join(parts, " || ")
}

// service returns the name of the Kubernetes service in an address: its first label.
func service(address string) string {
	host, _, _ := net.SplitHostPort(address)
	if _, err := netip.ParseAddr(host); err == nil {
		return "anteroom" // not the address of a Kubernetes service
	}
	name, _, _ := strings.Cut(host, ".")
	return name
}

// port returns the port of an address.
func port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}
