// Package docs has the test that compiles the Go code of the documents. It is in this
// module because pages about moving show the code of other libraries.
package docs
