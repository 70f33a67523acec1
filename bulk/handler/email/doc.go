// Package email runs jobs by handing a message each to an SMTP server.
package email
