package suite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/test/recorder"
)

// Spoof sends raw requests through the proxy that try to enter a full room. None may reach the origin without a pass, and none with
// a session that the client has chosen.
func Spoof(t *testing.T, s *Site) {
	free := s.visitor(t, "free")
	pass := free.Admit(s.Proxy)
	for _, c := range spoofs(pass) {
		t.Run(c.name, func(t *testing.T) {
			n := s.Origin.Count()
			text := c.text
			method, _, _ := strings.Cut(text, " ")
			a, err := exchange(s.Address, "", method, text)
			if err != nil && !c.cut {
				t.Logf("no response: %v", err)
			}
			for _, got := range s.Origin.Requests()[n:] {
				switch {
				case forged(&got):
					t.Errorf("ENTRY: the origin got the client's session: %+v", got)
				case !c.open && !c.reaches:
					t.Errorf("ENTRY: the origin got %+v", got)
				}
			}
			if s.Proxy.Aliases && c.alias && a != nil && a.StatusCode == 403 {
				return
			}
			if c.reaches && (a == nil || !a.Reached()) {
				t.Errorf("the request should reach the origin: %v", a)
			}
			if a != nil && a.StatusCode == 200 && a.Header.Get("X-Waiting-Room") == "pass" && !a.Reached() {
				t.Errorf("a visitor reached the check endpoint: %s", a)
			}
		})
	}
}

// forged reports whether a request has the session of the spoofs, under any name that an origin may read as that field.
func forged(r *recorder.Request) bool {
	for name, values := range r.Header {
		name = strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
		if name == "x-waiting-room-session" && strings.Contains(strings.Join(values, " "), "forged") {
			return true
		}
	}
	return false
}

// spoof is a raw request.
type spoof struct {
	name, text string
	open       bool // may reach the origin: the gateway does not gate it
	reaches    bool // has to reach the origin
	cut        bool // the proxy may close the connection without a response
	alias      bool // has another spelling of X-Waiting-Room-Session
}

func spoofs(pass string) (all []spoof) {
	add := func(name, line string, fields ...string) *spoof {
		if !strings.Contains(line, " HTTP/") {
			line += " HTTP/1.1"
		}
		lines := append([]string{line}, fields...)
		if !strings.Contains(strings.ToLower("\n"+strings.Join(fields, "\n")), "\nhost:") {
			lines = append(lines, "Host: full.test")
		}
		all = append(all, spoof{name: name, text: strings.Join(append(lines, "Connection: close", "", ""), "\r\n")})
		return &all[len(all)-1]
	}
	const session = "X-Waiting-Room-Session: forged"

	for _, value := range []string{
		"X-Forwarded-Uri: /open", "X-Forwarded-Method: OPTIONS", "X-Forwarded-Host: off.test", "X-Forwarded-Prefix: /open", "X-Forwarded-Port: 80",
		"X-Original-URI: /open", "X-Original-URL: /open", "X-Original-Method: OPTIONS", "X-Original-Host: off.test", "X-Rewrite-URL: /open", "X-Replaced-Path: /open",
		"X-Forwarded-Proto: https", "X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1", "Forwarded: for=127.0.0.1;host=off.test;proto=https", "X-Forwarded-Server: off.test",
		"X-Host: off.test", "X-Waiting-Room: pass", session, "X-Waiting-Room-Room: off",
	} {
		name, content, _ := strings.Cut(value, ":")
		add("field "+value, "GET /seats", value)
		for _, sign := range []string{"_", "."} {
			add("alias "+strings.ReplaceAll(name, "-", sign)+":"+content, "GET /seats", strings.ReplaceAll(name, "-", sign)+":"+content)
		}
		add("field twice "+value, "GET /seats", value, value)
		add("field in Connection "+value, "GET /seats", value, "Connection: close, "+name)
	}
	for _, path := range []string{
		"//open", "/./open", "/open/../seats", "/open/%2e%2e/seats", "/open%2f..%2fseats", "/open/..;/seats", "/open;a=b/../seats", "/%6fpen/../seats", "/open/.%2e/seats",
		"/open\\..\\seats", "/open%5c..%5cseats", "/seats?/open", "/seats?x=/open", "/seats;/open", "/seats#/open", "/seats%3f/open", "/seats%23/open",
		"/open/..%2fseats", "/open//../seats", "/open%00/../seats", "/OPEN/../seats", "/.waiting-room/../seats", "/.waiting-room/%2e%2e/seats", "/.waiting-room/..%2fseats", "/.waiting-room%2f../seats",
		"/.waiting-room/;/../../seats", "//.waiting-room/../seats", "/open/\t../seats",
	} {
		add("path "+path, "GET "+path, session)
	}
	add("path with two layers of escapes", "GET /open/%252e%252e/seats").open = true // is below /open: the gateway, as servers do, decodes once
	add("absolute form", "GET http://full.test/seats", session)
	add("absolute form of another host", "GET http://off.test/seats", "Host: full.test", session).open = true // the target names the host of a room that is off
	add("absolute form, Host of another", "GET http://full.test/seats", "Host: off.test", session)
	add("absolute form without a path", "GET http://full.test", session)
	add("two Hosts", "GET /seats", "Host: full.test", "Host: off.test")
	add("two Hosts, the other first", "GET /seats", "Host: off.test", "Host: full.test")
	add("Host with a user", "GET /seats", "Host: off.test@full.test")
	add("Host with a port", "GET /seats", "Host: full.test:80")
	add("Host with a dot", "GET /seats", "Host: full.test.")
	add("Host in capitals", "GET /seats", "Host: FULL.TEST")
	add("Host with a comma", "GET /seats", "Host: full.test, off.test")
	add("folded Host", "GET /seats", "Host: full.test\r\n off.test")
	add("no Host", "GET /seats HTTP/1.0", "X: y\r\nHost:")
	for _, method := range []string{"HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "POST", "DELETE"} {
		add("method "+method, method+" /seats", session)
	}
	add("method by header", "GET /seats", "X-HTTP-Method-Override: OPTIONS", "Access-Control-Request-Method: GET", "Origin: http://other.test")
	add("preflight with an override", "OPTIONS /seats", "X-HTTP-Method-Override: GET", "Access-Control-Request-Method: GET", "Origin: http://other.test")
	for _, cookie := range []string{"wr_full_pass=" + pass, "wr_free_pass=" + pass, "__Host-wr_full_pass=" + pass, "wr_full_pass=x; wr_full_pass=" + pass, "wr_full_pass=" + pass + "; wr_full_pass=" + pass, "wr_full_pass=" + strings.ToUpper(pass)} {
		name, _, _ := strings.Cut(cookie, "=")
		add(fmt.Sprint("pass of another room in ", name, ", ", strings.Count(cookie, "=")), "GET /seats", "Cookie: "+cookie)
	}
	add("method by header, against a bypass rule with methods", "GET /search", "X-HTTP-Method-Override: POST")
	if parts := strings.Split(pass, "."); len(parts) == 3 { // {"alg":"none","typ":"pass+jwt"}
		add("pass without an algorithm", "GET /seats", "Cookie: wr_full_pass=eyJhbGciOiJub25lIiwidHlwIjoicGFzcytqd3QifQ."+parts[1]+".")
	}
	add("pass of another room as field", "GET /seats", "X-Waiting-Room-Pass: "+pass)
	add("pass of another room as bearer", "GET /seats", "Authorization: Bearer "+pass)
	for _, path := range []string{"/.waiting-room/check", "/.waiting-room/check/open", "/.waiting-room/check/", "/.waiting-room//check", "/.waiting-room/./check", "/.waiting-room/%63heck"} {
		add("check endpoint "+path, "GET "+path, "X-Original-URI: /open", "X-Original-Method: GET", "X-Forwarded-Uri: /open", "X-Forwarded-Method: GET", "X-Forwarded-Host: full.test")
	}
	add("1 MB header", "GET /seats", "X-Long: "+strings.Repeat("a", 1<<20)).cut = true
	for _, kb := range []int{7, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 28, 60} {
		add(fmt.Sprint("header of ", kb, " KB in lines of 1 KB"), "GET /seats", strings.TrimSuffix(strings.Repeat("X-Long: "+strings.Repeat("a", 1000)+"\r\n", kb), "\r\n")).cut = true
	}
	for n := 14600; n < 15400; n += 40 { // around the buffer of HAProxy, which holds the visitor's request and has to hold the check
		add(fmt.Sprint("field of ", n, " bytes"), "GET /seats", "X-Long: "+strings.Repeat("a", n)).cut = true
		add(fmt.Sprint("target of ", n, " bytes, near the buffer"), "GET /seats?"+strings.Repeat("a", n)).cut = true
	}
	add("many fields", "GET /seats", strings.TrimSuffix(strings.Repeat("A: b\r\n", 150), "\r\n")).cut = true
	for _, n := range []int{3000, 7000, 7900, 8100, 8250, 12000, 15000} {
		add(fmt.Sprint("target of ", n, " bytes"), "GET /seats?"+strings.Repeat("a", n)).cut = true
		add(fmt.Sprint("target of ", n, " bytes and a long field"), "GET /seats?"+strings.Repeat("a", n), "X-Long: "+strings.Repeat("a", n)).cut = true
	}
	add("upgrade", "GET /seats", "Upgrade: websocket", "Connection: Upgrade")
	add("upgrade to h2c", "GET /seats", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", "Connection: Upgrade, HTTP2-Settings")
	add("body on GET", "GET /seats", "Content-Length: 4\r\n\r\nx=yz")
	add("chunks and a length", "POST /seats", "Transfer-Encoding: chunked", "Content-Length: 3\r\n\r\n0\r\n\r\nGET /open HTTP/1.1\r\nHost: full.test")
	add("HTTP/1.0", "GET /seats HTTP/1.0")

	// Requests that may reach the origin, but not with the client's session.
	for _, field := range []string{session, "X_Waiting_Room_Session: forged", "X.Waiting.Room.Session: forged", "x-waiting-room-session: forged", "X-Waiting_Room-Session: forged", session + "\r\n" + session, session + "\r\nConnection: close, X-Waiting-Room-Session"} {
		for name, more := range map[string][]string{
			"bypass with ":           {"GET /open"},
			"room that is off with ": {"GET /seats", "Host: off.test"},
			"pass with ":             {"GET /seats", "Host: free.test", "Cookie: wr_free_pass=" + pass},
		} {
			c := add(name+field, more[0], append(more[1:], field)...)
			c.reaches, c.alias = true, strings.ContainsAny(field, "_.")
		}
		add("visitors' socket with "+field, "GET /.waiting-room/full/status", field)
	}
	return all
}
