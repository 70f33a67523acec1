// Package email runs jobs by sending one message each through an SMTP server.
package email
