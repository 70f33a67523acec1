// Package page renders the waiting page: one HTML document without any outside request, in the visitor's language.
//
// The page is rendered whole on the server, so that it works without JavaScript. Its script then keeps it up to date: it
// polls /.waiting-room/{room}/status and opens the requested page once the visitor is admitted. Style and script are the
// same bytes for every visitor, so that the Content-Security-Policy can name them by hash. Only text and data attributes
// differ, and all of them are escaped. The page has less than 14 KB in each language.
//
// Reading order: page.go (Options, New, Append), view.go (what differs between visitors), words.go and words.js (sentences),
// languages.go, splice.go (fast rendering), policy.go, source.go, page.js, error.go.
//
// A language is one file in languages/, named by its BCP 47 tag: copy en.json, translate the values, and the tests
// check the rest. A value is a string, or an object of CLDR plural forms ("one", "few", … and always "other").
package page
