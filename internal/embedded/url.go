package embedded

import (
	"net/url"
	"strings"
)

// escape writes a path as part of a URL, its slashes as they are.
func escape(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}
