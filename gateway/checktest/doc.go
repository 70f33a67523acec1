// Package checktest has proxies that ask a gateway about each request before they forward it. They replace proxies that tests cannot
// run: each builds its checks and carries out the answers by the rules of the program that it is named after, which were read in that
// program's source. The name and version of the source stand with each.
package checktest
