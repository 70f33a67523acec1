// Command compare measures the gateway beside nginx and HAProxy on the same machine in the same run, taking turns, and
// prints the medians, their ratios and the bars. Figures of different machines do not compare; ratios of one run do.
package main
