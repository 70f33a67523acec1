// Package storeopen opens the store that a configuration names, or starts the embedded one.
package storeopen
