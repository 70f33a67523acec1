// Command soak runs everything that a site does through one gateway for a while (polls, passes, joins, uploads,
// downloads, upgraded connections, clients that leave or dawdle, reloads) and fails where an answer was wrong, or where
// memory, goroutines or file descriptors have grown.
package main
