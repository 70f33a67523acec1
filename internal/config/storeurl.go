package config

import (
	"errors"
	"net/url"
	"strings"
)

// splitStoreURL reads a URL that may name several hosts, h1:26379,h2:26379,
// which net/url takes for a bad port. The URL comes back with the first host
// alone. Errors never repeat the text: it may hold a password.
func splitStoreURL(text string) (*url.URL, []string, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return nil, nil, errors.New("is no URL")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, list := "", authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, list = authority[:i+1], authority[i+1:]
	}
	hosts := strings.Split(list, ",")
	for _, host := range hosts {
		if _, err := url.Parse(scheme + "://" + host); err != nil || host == "" && len(hosts) > 1 {
			return nil, nil, errors.New("names a host that is none")
		}
	}
	u, err := url.Parse(scheme + "://" + user + hosts[0] + tail)
	if err != nil {
		return nil, nil, errors.New("is no URL")
	}
	return u, hosts, nil
}
