// Package etcd holds no code. Its module pins the etcd server that tests start.
// It is not in the module of the other tools, as lint would then have to load
// the dependencies of etcd to know staticcheck's. Build the server with
// .ci/etcd.
package etcd
