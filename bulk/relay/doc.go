// Package relay moves the rows of an outbox table into the bulk engine, each row once (see docs/outbox.md).
//
// An application inserts rows in its own transactions. A Relay reads committed rows in the order of their ids. For each batch
// it takes these steps:
//
//  1. creates the groups that new rows need,
//  2. writes into sent_to of each new row its group and when that group was created, and commits,
//  3. sends the rows, each with its job_id as the id of the job,
//  4. deletes the rows whose jobs the server has, and commits.
//
// A relay that is killed leaves either rows without sent_to, which were never sent, or rows that are sent again to the same
// group, where an id is accepted once. If that group was sealed or deleted meanwhile, the relay asks the server for the job. If
// the server cannot know whether it has accepted the job, the row stays in the table with an error and is not sent again.
package relay
