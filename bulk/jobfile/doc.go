// Package jobfile reads files of jobs: it decompresses gzip and zstd, and turns the records of CSV into the NDJSON lines that
// the bulk worker accepts. It needs the same memory for a file of any length.
package jobfile
