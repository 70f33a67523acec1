// Package schedule creates groups at the times of cron expressions, each once, whatever number of processes does so.
//
// The group of a run is named after its schedule and its time. A process that creates it a second time, because another was
// faster or died before it had noted the run, finds the group that exists. A schedule's next time is written only if nobody
// has changed the schedule meanwhile.
package schedule
