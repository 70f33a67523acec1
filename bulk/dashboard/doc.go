// Package dashboard is the bulk worker's web page for operators: groups with their progress, rate and congestion, and
// the actions on them.
//
// The page is one document without data. Its script calls the public API under /v1 with the token that the user types
// in, so it can do no more than curl with that token.
package dashboard
