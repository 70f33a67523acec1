// Package drawcheck recomputes a lottery's draw from what was published and from tickets.
package drawcheck
