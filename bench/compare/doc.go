// Command compare measures the gateway beside nginx and HAProxy on the same machine in the same run, in turns, and prints
// the medians, their ratios and the bars. Only ratios of one run are comparable between machines.
package main
