//go:build race

package etcd_test

const underRace = true
