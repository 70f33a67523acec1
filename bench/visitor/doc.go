// Package visitor is a client of a gateway's visitor API: it joins a room's queue, polls, claims and leaves, requests pages
// of the site with a pass, and follows its place. It uses only what a visitor receives.
package visitor
