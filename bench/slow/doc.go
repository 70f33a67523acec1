// Package slow holds many connections to a server that make no use of them: the crowd in front of which others must
// still be served.
package slow
