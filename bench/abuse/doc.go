// Command abuse sends requests and responses that two parsers may read in two ways through nginx, HAProxy, a bare fasthttp
// proxy and the gateway, and counts what each refuses or makes unambiguous. An origin on raw sockets records what it
// receives.
package main
