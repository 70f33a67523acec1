// Command bulk measures the bulk worker beside asynq on the same machine in the same run, in turns on a private Redis, and
// prints the medians, their ratios and the bars. Only ratios of one run are comparable between machines.
//
// With --peers it also measures BullMQ, by the program in the directory bullmq on the same Redis, and River on a private PostgreSQL,
// where one tenant has all jobs: neither has tenants.
package main
