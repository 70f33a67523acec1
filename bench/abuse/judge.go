package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// judge returns why a case is not passed, or an empty string, given what the origin and the client received. strict is for
// the gateway.
func judge(c abuse, strict bool, got []*message, received string) string {
	if c.want == clean {
		if c.want = either; strict {
			c.want = refuse
		}
	}
	if strings.Contains(received, "POISON") {
		return "the client received what the origin sent after the end of a response"
	}
	complete := 0
	for _, m := range got {
		if strings.Contains(m.first, "/smuggled") {
			return "the request in the body was executed"
		}
		if !m.complete {
			continue
		}
		complete++
		switch {
		case c.want == refuse:
			return fmt.Sprintf("forwarded: %.200q", m.header)
		case len(m.problems) > 0:
			return fmt.Sprintf("forwarded ambiguously: %s", strings.Join(m.problems, "; "))
		case c.absent != "" && strings.Contains(m.header, c.absent):
			return fmt.Sprintf("%q was forwarded", c.absent)
		case c.body != "" && c.want != bad && strings.HasPrefix(m.first, "POST") && string(m.body) != c.body:
			return fmt.Sprintf("its body was forwarded as %.60q", m.body)
		}
	}
	replies := responses(received)
	switch c.want {
	case refuse:
		for _, a := range replies {
			if strings.HasPrefix(a.first, "HTTP/1.1 2") {
				return fmt.Sprintf("served without the origin: %.200q", received)
			}
		}
	case serve:
		n := strings.Count(c.send, "X-Case:")
		if complete != n {
			return fmt.Sprintf("%d of %d requests were forwarded (%.60q)", complete, n, received)
		}
		served := 0
		for _, a := range replies {
			if a.complete && len(a.problems) == 0 && strings.HasPrefix(a.first, "HTTP/1.1 200") && string(a.body) == "ok" {
				served++
			}
		}
		if served != n {
			return fmt.Sprintf("%d of %d answers were delivered: %.200q", served, n, received)
		}
	case bad:
		for _, a := range replies {
			switch {
			case len(a.first) > 9 && a.first[9] == '5':
			case !a.complete: // a client notices that it was cut off
			case len(a.problems) > 0:
				return fmt.Sprintf("delivered ambiguously: %s", strings.Join(a.problems, "; "))
			case strings.HasPrefix(a.first, "HTTP/1.1 101"):
				return "a protocol switch without a request was delivered"
			case string(a.body) != c.body:
				return fmt.Sprintf("delivered as %.60q", a.body)
			}
		}
	}
	return ""
}

// responses parses what a client received. The last response may be incomplete.
func responses(received string) (all []*message) {
	r := bufio.NewReader(strings.NewReader(received))
	for {
		m, err := readMessage(r, false)
		if m != nil {
			all = append(all, m)
		}
		if m == nil || err != nil && !errors.Is(err, io.EOF) || !m.complete {
			return all
		}
	}
}
