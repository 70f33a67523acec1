// Package outbox keeps the events of rooms in the store until they are delivered.
//
// Gateways record the states of rooms; a change of a state queues its event in the same step, so that it is queued once however many
// gateways see it. One gateway holds a lease, takes the events that are due and sends them. Another takes over when the lease ends.
package outbox
