// Package integration holds the tests of dlock that need more than the library
// itself may depend on. It is a module of its own to keep those dependencies away
// from users of the library.
//
//   - model: the lock model, for Porcupine
//   - sim: histories of real clients over the memory store, with faults, judged
//   - mutants: faults planted in the code, which sim or a named test has to find
//   - real: histories of worker processes on real servers, with faults, judged
//   - matrix, wakeups, cancels, fenced, fence: one promise each, on real servers
//   - peers: other libraries through the same faults
//   - property: random operations against short models
//   - bench: dlock beside other libraries, measured
//   - section: writes what was measured into documents
package integration
