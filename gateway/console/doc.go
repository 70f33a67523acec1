// Package console serves operators: the admin API, the dashboard, metrics, health and profiles, on a listener of its
// own.
//
// Reading order: Options and New in console.go, guard.go for authorization, rooms.go and patch.go for what operators
// see and change.
package console
