// Command simulate calculates what a long queue takes, from ten thousand to ten million waiting: gateways, store commands,
// processor time, memory and network. It applies the rules that the gateway follows to the measured costs of each operation
// in calibration.json. With --check it fills real queues and compares.
package main
