// Package relay moves the rows of an outbox table into the bulk engine, each row once (see docs/outbox.md).
//
// An application inserts rows in its own transactions. A Relay reads committed rows in the order of their ids and does with
// each batch, in this order:
//
//  1. creates the groups that new rows need,
//  2. writes into each new row the group to which it goes and when that was created (sent_to), and commits,
//  3. sends the rows, each with its job_id as the id of the job,
//  4. deletes the rows that the server has, and commits.
//
// A relay that is killed leaves either rows without sent_to, which were never sent, or rows that are sent again to the same
// group, where an id is accepted once. If that group is sealed or deleted meanwhile, the group is asked for the job. A row
// whose job cannot be found out about is kept in the table with an error, and not sent again.
package relay
