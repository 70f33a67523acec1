package config

import (
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/anteroom/anteroom/internal/settings"
)

func (c checker) tracing(t Tracing) {
	if t.OTLPEndpoint != "" {
		u, err := url.Parse(t.OTLPEndpoint)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			c.Add("tracing.otlp_endpoint", "%q is not an address; use http or https, as http://127.0.0.1:4318", settings.Clip(t.OTLPEndpoint))
		case u.User != nil:
			c.Add("tracing.otlp_endpoint", "has credentials before its host; put an Authorization field into tracing.headers_file instead")
		case u.RawQuery != "" || u.Fragment != "":
			c.Add("tracing.otlp_endpoint", "%q has a query or a fragment; use the address alone", settings.Clip(t.OTLPEndpoint))
		}
	}
	if t.HeadersFile != "" {
		if _, err := t.Headers(); err != nil {
			c.Add("tracing.headers_file", "%v", err)
		}
	}
}

// Headers reads the header fields of headers_file; nil without a file.
func (t *Tracing) Headers() (map[string]string, error) {
	if t.HeadersFile == "" {
		return nil, nil
	}
	data, err := readSmall(t.HeadersFile)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) { // the value is a secret
			return nil, fmt.Errorf("%q: line %d is not a header field; write Name: value", t.HeadersFile, i+1)
		}
		fields[name] = value
	}
	return fields, nil
}
