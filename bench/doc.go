// Package bench has nothing but benchmarks: the locks of dlock on the memory
// store, and beside them, in the same run, the locks of package sync and a lock
// made of a channel. docs/benchmarks.md has the figures; the program in table
// measures them anew.
package bench
