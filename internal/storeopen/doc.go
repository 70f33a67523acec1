// Package storeopen opens the store that a configuration names, and starts one
// where it names none.
package storeopen
