// Command chaos admits visitors to one room through several gateways over one Redis, while gateways are killed, stopped and
// restarted and Redis is stopped at random. It then judges what the visitors received: never over the limit, in order, no
// place lost, no ticket spent twice. The seed that it prints repeats the faults.
package main
