// Package webhook sends the events of rooms to others' HTTP endpoints, as the Standard Webhooks specification describes
// (standardwebhooks.com): an id that stays the same when an event is sent again, and signatures of id, time and body.
//
// Each gateway watches the stores of its rooms. One gateway, the holder of the lease in admission/outbox, watches everything else and sends.
//
// Reading order: event.go, signature.go, watch.go, stores.go, sender.go, dispatcher.go.
package webhook
