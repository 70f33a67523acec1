// Package lua holds the store's state transitions as Redis scripts, checks their headers, loads them and runs them.
//
// Each file is one transition, named <aggregate>_<verb>.lua, and opens with a header that the loader reads:
//
//	#!lua flags=allow-oom
//	-- room_enter: takes a slot for each visitor, or a place in the line where there is none.
//	-- KEYS:      state, line
//	-- ARGV:      now, epoch, id, order, ...
//	-- RETURNS:   for each visitor 1 (let in) or 0 (in the line)
//	-- INVARIANT: never over the limit
//	-- INCLUDE:   clock, limiter
//
// The header ends at the first line that is not a comment. A comment line in it that names no field continues the field
// above it; a remark in parentheses after a name in KEYS and ARGV is not read. INCLUDE is the only field that may be left out.
//
//   - The first line may carry the flags no-writes, allow-oom and allow-stale. Without flags a plain #!lua stands there:
//     Redis then declares the script as one that writes and refuses it over maxmemory.
//   - KEYS are fixed in number. All keys of one call share a hash tag and none is computed inside a script, so a room
//     stays on one node of a cluster.
//   - ARGV begins with now: microseconds, 0 for Redis's own clock. A last name of "..." says that what stands before it repeats.
//   - An included library is a plain Lua file in lib/ that defines locals. It is put between header and body, so its locals
//     count towards Lua's limit of 200 in one function.
//   - Of a library only those functions are sent that the script names, or what it names needs: Redis makes every function anew with each
//     call. Such a function stands at the left edge, as "local function f(" or "function table.f(", and ends with an "end" there.
//   - A line "-- RECORD G: key, id, ..." in a library names the fields of a packed array. G_KEY and G_ID in library and script
//     are replaced by 1 and 2, G_LENGTH by the number of fields, G_FIELDS by the list of their names.
//
// Errors of a script name the line of the file that it was written in, not of the text that was sent.
package lua
