// Package lua holds the store's state transitions as Redis scripts, checks their headers, loads them and runs them.
//
// Each file is one transition, named <aggregate>_<verb>.lua. It opens with a header that the loader reads and checks:
//
//	#!lua flags=allow-oom
//	-- room_claim: exchanges admitted tickets for sessions.
//	-- KEYS:      state, queue
//	-- ARGV:      now, epoch, id, client, ...
//	-- RETURNS:   for each ticket a reply code
//	-- REPLY CLAIMED: 'C'  the ticket became a session
//	-- REPLY UNKNOWN: 'U'  the store does not hold the ticket
//	-- INVARIANT: a ticket is spent once
//	-- INCLUDE:   clock, room
//
// The header ends at the first line that is not a comment. A comment line that names no field continues the field above it. A
// remark in parentheses after a name in KEYS and ARGV is not read. REPLY and INCLUDE are optional.
//
//   - The first line may carry the flags no-writes, allow-oom and allow-stale. Without allow-oom Redis refuses the script over
//     maxmemory.
//   - KEYS are fixed in number. All keys of one call share a hash tag and no script computes one, so a room stays on one node
//     of a cluster.
//   - ARGV begins with now: microseconds, 0 for Redis's own clock. A last name of "..." means that the arguments before it
//     repeat, or that groups follow which the header describes. An argument has one meaning in every call.
//   - RETURNS describes the reply. Each REPLY line declares one code of it, a string or a number. REPLY_CLAIMED in the script is
//     replaced by the value; the Go caller has a constant of the same value, and its tests compare the two with
//     [Script.Replies]. Scripts share the codes that their libraries declare. No two codes of a script have the same value.
//   - INCLUDE lists libraries: plain Lua files in lib/ that define locals. They are inserted between header and body, so their
//     locals count towards Lua's limit of 200 in one function.
//   - Only those library functions are sent that the script needs, directly or through others, because Redis creates every
//     function anew with each call. Such a function starts at the left edge, as "local function f(" or "function table.f(",
//     and ends with an "end" there.
//   - A line "-- RECORD G: key, id, ..." in a library declares the fields of a packed array. G_KEY and G_ID in library and
//     script are replaced by 1 and 2, G_LENGTH by the number of fields, G_FIELDS by the list of their names.
//
// Errors of a script name the file and line in which the failing line was written.
//
// # How to add a script
//
// Write <aggregate>_<verb>.lua with the header above, its steps as named functions, and the main part at the end. Declare every
// code that it replies as REPLY, and add a constant for each to replies.go of admission or bulk/store, whose keys.go has the
// key names. Call it from one Go function there. The tests of this package then compile the script in a real Redis and check it
// with luacheck; scripts_test.go in admission or bulk/store fails until its "one of everything" runs it.
// If the script runs Redis commands that no other does, add them to the user in docs/store.md.
package lua
