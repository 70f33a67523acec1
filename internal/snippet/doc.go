// Package snippet prints the configuration with which another proxy asks the gateway about each request. Addresses, hosts and names
// come from the configuration of the gateway. texts/ has the templates.
package snippet
