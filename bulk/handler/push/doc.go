// Package push runs jobs by sending notifications: to apps through Firebase Cloud Messaging (HTTP v1) or Apple's APNs, to
// browsers through Web Push (RFC 8030, 8291, 8292).
package push
