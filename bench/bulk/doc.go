// Command bulk measures the bulk worker beside asynq on the same machine in the same run, taking turns on a Redis of their
// own, and prints the medians, their ratios and the bars. Figures of different machines do not compare; ratios of one run do.
package main
