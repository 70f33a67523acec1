// Package adaptive decides how fast an origin can be fed, from how it feels: the
// latency and the errors of what it is given. It is pure: time is a parameter, and
// it knows nothing of rooms, stores or gateways.
package adaptive
