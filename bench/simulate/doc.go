// Command simulate works out what a long line takes: gateways, store commands, processor time, memory and network, from
// ten thousand to ten million waiting. The line is modelled by the rules that the gateway itself follows; what one
// operation costs is measured on this machine first, or read from a file; with --check, real lines are filled and the
// outcome is compared.
package main
