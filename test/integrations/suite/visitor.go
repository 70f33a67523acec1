package suite

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// Accept headers of a browser that opens a page, and of a script.
const (
	Page = "Accept: text/html"
	JSON = "Accept: application/json"
)

// Response is a response to a visitor.
type Response struct {
	*http.Response
	Text string
}

func (r *Response) String() string {
	if r == nil {
		return "no response"
	}
	return fmt.Sprintf("%d %v %s", r.StatusCode, r.Header, r.Text[:min(len(r.Text), 400)])
}

// Field returns a field of a JSON body.
func (r *Response) Field(name string) string {
	var fields map[string]any
	if json.Unmarshal([]byte(r.Text), &fields) != nil || fields[name] == nil {
		return ""
	}
	return fmt.Sprint(fields[name])
}

// Reached reports whether the response is the origin's.
func (r *Response) Reached() bool { return r.Header.Get("X-Origin") == "yes" }

// Visitor is a client with cookies at one host.
type Visitor struct {
	t       testing.TB
	address string
	host    string
	tls     bool
	cookies map[string]string
}

// NewVisitor returns a visitor of a host behind the proxy at an address.
func NewVisitor(t testing.TB, address, host string) *Visitor {
	return &Visitor{t: t, address: address, host: host, cookies: map[string]string{}}
}

// Do sends a request, such as "GET /path", with header fields and, after an empty string, a body.
func (v *Visitor) Do(request string, fields ...string) *Response {
	v.t.Helper()
	lines := []string{request + " HTTP/1.1", "Host: " + v.host}
	if len(v.cookies) > 0 {
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(v.cookies)) {
			pairs = append(pairs, name+"="+v.cookies[name])
		}
		lines = append(lines, "Cookie: "+strings.Join(pairs, "; "))
	}
	body := ""
	for i, field := range fields {
		if field == "" {
			body = strings.Join(fields[i+1:], "")
			lines = append(lines, fmt.Sprint("Content-Length: ", len(body)))
			break
		}
		lines = append(lines, field)
	}
	method, _, _ := strings.Cut(request, " ")
	name := ""
	if v.tls {
		name = v.host
	}
	a, err := exchange(v.address, name, method, strings.Join(append(lines, "Connection: close", "", body), "\r\n"))
	if err != nil {
		v.t.Fatalf("%s at %s: %v", request, v.host, err)
	}
	for _, c := range a.Cookies() {
		if v.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(v.cookies, c.Name)
		}
	}
	return a
}

// exchange sends the text of a request on a new connection, with TLS if the name of the server is not empty, and reads the response.
func exchange(address, name, method, text string) (*Response, error) {
	conn, err := dial(address, name)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, text) }() // a proxy may answer before it has read everything
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return &Response{response, string(body)}, err
}

func dial(address, name string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	if name != "" {
		return tls.Client(conn, &tls.Config{ServerName: name, InsecureSkipVerify: true}), nil //nolint:gosec // the certificate is the test's own
	}
	return conn, nil
}

// Admit gets a pass for the visitor, with a request through the proxy or, where that cannot, with a ticket as the page takes it.
func (v *Visitor) Admit(p *Proxy) string {
	v.t.Helper()
	room, _, _ := strings.Cut(v.host, ".")
	Eventually(v.t, "a visitor of "+v.host+" has a pass", func() bool {
		if v.Pass() != "" {
			return true
		}
		a := v.Do("GET /", Page)
		if a.StatusCode != 200 && !p.Page { // the script of the page
			v.Do("POST /.waiting-room/"+room+"/tickets", JSON)
		}
		return v.Pass() != ""
	})
	return v.Pass()
}

// Pass returns the value of the visitor's pass.
func (v *Visitor) Pass() string {
	for name, value := range v.cookies {
		if strings.HasSuffix(name, "_pass") {
			return value
		}
	}
	return ""
}
