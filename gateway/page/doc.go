// Package page renders the waiting page: one HTML document without any outside request, in the visitor's language.
//
// The page is rendered whole on the server, so that it reads without JavaScript, and then kept up to date by its
// script, which polls /.waiting-room/{room}/status and goes on by itself to the page that was asked for. Style and
// script are the same bytes for every visitor, so that the Content-Security-Policy names them by hash; what
// differs is text and data attributes, all of it escaped. The whole stays under 14 KB for each language.
//
// A language is one file in languages/, named by its BCP 47 tag: copy en.json, translate the values, and the tests
// check the rest. A value is a string, or an object of CLDR plural forms ("one", "few", … and always "other").
package page
