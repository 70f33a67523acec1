// Command chaos lets a crowd into one room through several built gateways over one Redis, while gateways are killed,
// stopped and started again and Redis is stopped, at random; then it judges what the visitors were told: never over the
// limit, in order, nobody lost, no ticket spent twice. The seed that it prints repeats the faults.
package main
