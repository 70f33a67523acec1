// Command live measures how soon a change of an operator or of the shop takes effect, with two gateways at one redis-server: a
// live change on both gateways and on the console's stream, an evacuation, and facts for visitors who poll and who listen.
package main
