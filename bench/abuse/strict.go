package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// message is a request or a response from a socket, with everything that a second parser may read in another way.
type message struct {
	first    string // its first line
	header   string
	body     []byte
	complete bool
	problems []string
}

func (m *message) problem(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

// The grammar of RFC 9110 and RFC 9112, without any tolerance.
var (
	requestLine = regexp.MustCompile(`^[!#$%&'*+.^_|~0-9A-Za-z-]+ (?:http://site\.test)?/[!-"$-\[\]-~]* HTTP/1\.[01]$`)
	statusLine  = regexp.MustCompile(`^HTTP/1\.[01] [1-5][0-9][0-9]( [\t -~\x80-\xff]*)?$`)
	fieldLine   = regexp.MustCompile(`^[!#$%&'*+.^_|~0-9A-Za-z-]+:[\t -~\x80-\xff]*$`)
	hostValue   = regexp.MustCompile(`^([0-9A-Za-z._~-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?$`)
	hexSize     = regexp.MustCompile(`^[0-9a-fA-F]{1,16}$`)
	extension   = regexp.MustCompile(`^(;[\t !-:<-~]+)*$`)
)

// readMessage reads one message. It returns a message and an error if the message is incomplete, and io.EOF before the first byte.
func readMessage(r *bufio.Reader, request bool) (m *message, err error) {
	var raw []byte
	for !bytes.HasSuffix(raw, []byte("\r\n\r\n")) {
		line, err := r.ReadSlice('\n')
		raw = append(raw, line...)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if len(raw) == 0 {
				return nil, io.EOF
			}
			return &message{header: string(raw)}, err
		}
		if len(raw) > 1<<20 {
			return &message{header: string(raw)}, errors.New("the header does not end")
		}
	}
	m = &message{header: string(raw)}
	lines := strings.Split(strings.TrimSuffix(string(raw), "\r\n\r\n"), "\r\n")
	m.first = lines[0]
	grammar := statusLine
	if request {
		grammar = requestLine
	}
	if !grammar.MatchString(bytewise(m.first)) {
		m.problem("first line %.60q", m.first)
	}
	lengths, encodings, hosts := m.fields(lines[1:])
	if request && (len(hosts) != 1 || !validHost(hosts[0])) {
		m.problem("Host %q", hosts)
	}
	length := int64(-1)
	if len(lengths) > 0 {
		length, err = strconv.ParseInt(lengths[0], 10, 64)
		if len(lengths) > 1 || err != nil || strconv.FormatInt(length, 10) != lengths[0] {
			m.problem("Content-Length %q", lengths)
		}
	}
	if len(encodings) > 0 && (len(encodings) > 1 || !strings.EqualFold(encodings[0], "chunked")) {
		m.problem("Transfer-Encoding %q", encodings)
	}
	if len(encodings) > 0 && len(lengths) > 0 {
		m.problem("Transfer-Encoding and Content-Length")
	}
	return m, m.readBody(r, request, len(encodings) > 0, length)
}

func validHost(h string) bool {
	m := hostValue.FindStringSubmatch(h)
	if m == nil {
		return false
	}
	_, err := strconv.ParseUint("0"+strings.TrimPrefix(m[2], ":"), 10, 16)
	return err == nil
}

// bytewise returns a string of one character for each byte, for regular expressions that match bytes.
func bytewise(s string) string {
	b := make([]rune, len(s))
	for i := range len(s) {
		b[i] = rune(s[i])
	}
	return string(b)
}

func (m *message) fields(lines []string) (lengths, encodings, hosts []string) {
	for _, l := range lines {
		if !fieldLine.MatchString(bytewise(l)) {
			m.problem("header line %.60q", l)
		}
		name, value, _ := strings.Cut(l, ":")
		value = strings.Trim(value, " \t")
		switch strings.ToLower(strings.ReplaceAll(strings.Trim(name, " \t"), "_", "-")) {
		case "content-length":
			lengths = append(lengths, value)
		case "transfer-encoding":
			encodings = append(encodings, value)
		case "host":
			hosts = append(hosts, value)
		}
	}
	return lengths, encodings, hosts
}

func (m *message) readBody(r *bufio.Reader, request, chunked bool, length int64) (err error) {
	status := ""
	if !request && len(m.first) > 12 {
		status = m.first[9:12]
	}
	switch {
	case status == "204" || status == "304" || strings.HasPrefix(status, "1"):
	case chunked:
		err = m.readChunks(r)
	case length >= 0:
		m.body = make([]byte, min(length, 1<<20))
		var n int
		n, err = io.ReadFull(r, m.body)
		m.body = m.body[:n]
	case !request:
		m.body, err = io.ReadAll(r)
	}
	m.complete = err == nil
	return err
}

func (m *message) readChunks(r *bufio.Reader) error {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		text := strings.TrimSuffix(line, "\r\n")
		size, _, _ := strings.Cut(text, ";")
		if len(text) == len(line) || !hexSize.MatchString(size) || !extension.MatchString(text[len(size):]) {
			m.problem("chunk size %.60q", line)
		}
		n, err := strconv.ParseUint(strings.TrimSpace(size), 16, 63)
		if err != nil || n > 1<<20 {
			return fmt.Errorf("chunk size %.60q", line)
		}
		if n == 0 {
			break
		}
		data := make([]byte, n+2)
		got, err := io.ReadFull(r, data)
		m.body = append(m.body, data[:min(got, int(n))]...)
		if err != nil {
			return err
		}
		if string(data[n:]) != "\r\n" {
			m.problem("%q after a chunk", data[n:])
		}
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if line == "\r\n" {
			return nil
		}
		if !strings.HasSuffix(line, "\r\n") || !fieldLine.MatchString(bytewise(strings.TrimSuffix(line, "\r\n"))) {
			m.problem("trailer %.60q", line)
		}
	}
}
