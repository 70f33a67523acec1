// Command soak sends everything that a site receives through one gateway for a long time: polls, passes, joins, uploads,
// downloads, upgraded connections, clients that leave or send slowly, and reloads. It fails if a response was wrong, or if
// memory, goroutines or file descriptors grow.
package main
