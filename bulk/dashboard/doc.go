// Package dashboard is the bulk worker's page for people: groups with their progress, rate and congestion, and what
// operators do about them.
//
// The page is one document without data. Its script asks the public API under /v1 with the token that the user types in,
// so that it can do nothing that curl could not, and shows nothing that the token may not see.
package dashboard
