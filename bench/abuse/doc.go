// Command abuse sends requests and answers that two parsers could read in two ways through nginx, HAProxy, a bare
// fasthttp proxy and the gateway, and counts what each refuses or makes unambiguous. An origin on raw sockets keeps what
// it received.
package main
