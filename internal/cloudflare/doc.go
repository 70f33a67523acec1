// Package cloudflare converts waiting rooms, as Cloudflare's API returns them, to a configuration of the gateway.
//
// Reading order: import.go finds the rooms in a file; object.go reads one JSON object member by member; room.go, event.go and rule.go
// convert the parts of a room; config.go is the configuration that is written. What cannot be converted becomes a Note.
package cloudflare
