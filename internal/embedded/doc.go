// Package embedded runs the store that belongs to a program itself: a Redis (or Valkey) server as a child on a private unix socket.
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
// All locks are flocks: the kernel lets go of them when their holder dies, however it dies. So whoever may take server.lock
// knows that no server writes the append-only file, be it one that nobody has heard of since its supervisor was killed, and
// two servers never write it at once. A server outlives a killed supervisor: the next program to come, or another that is
// there already, takes it over as it is. The last to leave stops it.
package embedded
