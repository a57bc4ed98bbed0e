// Package repository has the tests of the repository as a whole: which package may import
// which, links and programs in documents, and the page of faults beside the tests.
package repository

import (
	"fmt"
	"os"
	"testing"
)

// The tests name files from the root of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
