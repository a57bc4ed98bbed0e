package faults

import (
	"testing"

	"github.com/dlock-go/dlock/internal/coretest"
)

const (
	ttl          = coretest.TTL
	waitTTL      = coretest.WaitTTL
	storeTimeout = coretest.StoreTimeout
	askEvery     = coretest.AskEvery
	askGap       = coretest.AskGap
)

var validity = coretest.Validity

func TestMain(m *testing.M) { coretest.Main(m) }
