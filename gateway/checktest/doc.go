// Package checktest has proxies that ask a gateway about each request before they forward it. They stand for programs that tests cannot
// run: each writes its checks and treats the responses by the rules in the source of the program that it is named after. The comments name
// that source and its version.
package checktest
