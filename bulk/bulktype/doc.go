// Package bulktype has the JSON objects that package bulk/api writes and package bulk/client reads.
//
// T is the type of timestamps: time.Time where they are read. The server has its own, which always writes microseconds.
package bulktype
