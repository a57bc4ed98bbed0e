// Package tools holds no code but that of mutate. Its module pins the developer tools, so that
// their dependencies stay out of the library's go.mod. Run one from any module
// of the repository, here from the root:
//
//	go tool -modfile=tools/go.mod staticcheck ./...
package tools
