// Package jobfile reads files of jobs: decompresses gzip and zstd, and turns the records of CSV into the lines of NDJSON that the
// bulk worker takes. Memory is constant, whatever the length of a file.
package jobfile
