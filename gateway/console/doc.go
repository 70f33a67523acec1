// Package console serves operators: the admin API, the dashboard, metrics,
// health and profiles, on a listener apart from the visitors'.
//
// Reading order: Options and New in console.go, guard.go for who may do what,
// rooms.go and patch.go for what they see and change.
package console
