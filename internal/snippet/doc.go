// Package snippet prints the configuration with which another proxy asks the gateway's check endpoint about each request. The
// addresses, hosts and names come from the configuration of the gateway; texts/ has one template for each proxy.
package snippet
