// Command bulk measures the bulk worker beside asynq on the same machine in the same run, in turns on a private Redis, and
// prints the medians, their ratios and the bars. Only ratios of one run are comparable between machines.
package main
