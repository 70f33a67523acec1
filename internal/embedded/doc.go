// Package embedded runs a program's own store: a Redis (or Valkey) server as a child process on a private unix socket.
//
// The directory holds everything, mode 0700:
//
//	users.lock       held shared by each program that uses the store, exclusively by the one that stops it
//	supervisor.lock  held by the program that starts the server again when it dies; its text names that program
//	server.lock      held by the server process itself, handed to it when it starts
//	redis.sock       the socket (or in a directory under the temporary one, where this path is too long for a socket)
//	redis.pid, redis.log, appendonlydir
//	keys.json        the generated signing key, mode 0600
//
// All locks are flocks: the kernel releases them when their holder dies. A program that holds server.lock can therefore start a
// server: no other server writes the append-only file, not even one whose supervisor was killed. A server outlives a killed
// supervisor, and another program that uses the store takes it over. The last program to close the store stops the server.
package embedded
