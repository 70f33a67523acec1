// Package guard makes a place in the queue cost something: a proof of work that the client computes (ALTCHA), or an answer to
// another company's CAPTCHA. It keeps no state of the rooms and knows nothing of HTTP but what it asks the providers.
package guard

//go:generate go run ./gen
