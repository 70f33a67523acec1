// Package schedule creates groups at the times of cron expressions, one group for each time, whatever number of processes
// tries.
//
// The id of a run's group consists of the schedule's id and the run's time. If two processes create it, or one dies before it
// has recorded the run, the second call finds the group that exists. A schedule's next time is written only if the schedule
// was not changed meanwhile.
package schedule
