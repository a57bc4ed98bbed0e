// Package integration holds the tests of dlock that need more than the library
// itself may depend on, such as property tests. It is a module of its own to
// keep those dependencies away from users of the library.
package integration
