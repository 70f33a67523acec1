package console

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/gateway/explain"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// readQuestion reads the body of a request to the URL tester: {host, path, method, headers, address, https}.
func readQuestion(r *http.Request) (*explain.Request, error) {
	body, err := readObject(r, false)
	if err != nil {
		return nil, err
	}
	q := &explain.Request{Method: "GET"}
	faults := unknownFields(body, "host", "path", "method", "headers", "address", "https")
	fault := func(path string, value []byte, problem, allowed string) {
		faults = append(faults, ophttp.Fault{Path: path, Value: ophttp.Excerpt(value), Problem: problem, Allowed: allowed})
	}
	word := func(path string, value []byte, to *string, most int, fits func(string) bool, allowed string) {
		s, isText := text(value)
		if !isText || s == "" || len(s) > most || !fits(s) {
			fault(path, value, "is not "+allowed, allowed)
			return
		}
		*to = s
	}
	ophttp.Members(body, func(name, value []byte) bool {
		switch string(name) {
		case "host":
			word("host", value, &q.Host, 300, plain, "a host name, with or without a port")
		case "path":
			word("path", value, &q.Target, 8<<10, func(s string) bool { return plain(s) && s[0] == '/' }, "a path that begins with /, with or without a query")
		case "method":
			word("method", value, &q.Method, 32, plain, "a method such as GET")
		case "address":
			var s string
			word("address", value, &s, 64, func(s string) bool { _, err := netip.ParseAddr(s); return err == nil }, "an IP address")
			q.Address, _ = netip.ParseAddr(s)
		case "https":
			if q.TLS = string(value) == "true"; !q.TLS && string(value) != "false" {
				fault("https", value, "is not true or false", "true or false")
			}
		case "headers":
			if !isObject(value) {
				fault("headers", value, "is not an object", `an object such as {"Accept": "text/html"}`)
				break
			}
			ophttp.Members(value, func(name, value []byte) bool {
				field := [2]string{string(name)}
				word("headers."+string(name), value, &field[1], 8<<10, func(s string) bool { return !strings.ContainsAny(s, "\r\n\x00") }, "text without line breaks")
				if !plain(field[0]) || strings.EqualFold(field[0], "host") {
					fault("headers."+field[0], value, "is not the name of a field that can be given here", "the name of a field; the host is given as host")
				}
				q.Header = append(q.Header, field)
				return len(q.Header) < 100
			})
		}
		return true
	})
	for _, f := range []struct{ name, value string }{{"host", q.Host}, {"path", q.Target}} {
		if f.value == "" && !slices.ContainsFunc(faults, func(g ophttp.Fault) bool { return g.Path == f.name }) {
			fault(f.name, nil, "is missing", "text")
		}
	}
	if len(faults) > 0 {
		return nil, ophttp.Invalid(faults...)
	}
	return q, nil
}

// plain reports whether text is printable ASCII without blanks.
func plain(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}
