// Package drawcheck recomputes a lottery's draw from what was published and from tickets, for gateway verify-draw.
package drawcheck
