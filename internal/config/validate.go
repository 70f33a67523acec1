package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/anteroom/anteroom/internal/settings"
)

// Validate returns every problem that the types do not exclude: bounds, references, files, and settings that this version does
// not have. It reads the files that the configuration names.
func (c *Config) Validate() []Problem {
	check := gatewayChecker{checker{settings.Check(c)}, c}
	check.edge()
	check.checks()
	check.admin()
	check.tracing(c.Tracing)
	check.store(c.Store)
	check.tokens()
	check.origins()
	check.rooms()
	check.webhooks()
	return check.List
}

// checker checks values that both programs have: addresses, files, hosts, paths. Its methods add problems to those of the tags.
type checker struct{ *settings.Checker }

// gatewayChecker checks the sections of the gateway's configuration.
type gatewayChecker struct {
	checker
	cfg *Config
}

// roomChecker checks the sections of one room.
type roomChecker struct {
	checker
	cfg  *Config
	room *Room
}

// bulkChecker checks the sections of the bulk worker's configuration.
type bulkChecker struct {
	checker
	cfg *Bulk
}

var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// unique checks an id or a name, which noun names with its article, and that it is unique. path ends with the noun.
func (c checker) unique(path, noun, value string, seen map[string]string) {
	_, word, _ := strings.Cut(noun, " ")
	switch first, taken := seen[value]; {
	case value == "":
		c.Add(path, "is missing; use a name of lower-case letters, digits and dashes")
	case !idPattern.MatchString(value):
		c.Add(path, "%q is not %s; use 1 to 63 lower-case letters, digits and dashes, not beginning with a dash", settings.Clip(value), noun)
	case taken:
		c.Add(path, "%q is the %s of %s already; %ss are unique", value, word, first, word)
	default:
		seen[value] = strings.TrimSuffix(path, "."+word)
	}
}

// largestFile bounds every file that the configuration names.
const largestFile = 1 << 20

// file reads the file that a setting names, and reports whether it could.
func (c checker) file(path, name string) ([]byte, bool) {
	data, err := readSmall(name)
	if err != nil {
		c.Add(path, "%v", err)
		return nil, false
	}
	return data, true
}

func readSmall(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%q cannot be read: %w; check the path and its permissions", name, settings.Cause(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is not a regular file", name)
	}
	if info.Size() > largestFile {
		return nil, fmt.Errorf("%q has %d bytes; use at most %d", name, info.Size(), largestFile)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%q cannot be read: %w; check the path and its permissions", name, settings.Cause(err))
	}
	return data, nil
}
