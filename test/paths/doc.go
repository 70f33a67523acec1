// Package paths asks real servers which of their handlers they run for a path that can be read in several ways, and checks
// that the gateway in front of them takes no such path for another: what a server handles in a room never goes past it.
//
// The tests start Express and Node's own servers, Flask, Werkzeug, Django and Python's own, Tomcat, nginx, net/http and
// fasthttp, as far as they are installed. They run where PATHS_SPELLINGS says how many paths are drawn, as make explore does.
package paths
