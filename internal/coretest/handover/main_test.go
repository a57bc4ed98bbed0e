package handover

import (
	"testing"

	"github.com/dlock-go/dlock/internal/coretest"
)

const (
	ttl          = coretest.TTL
	waitTTL      = coretest.WaitTTL
	storeTimeout = coretest.StoreTimeout
)

func TestMain(m *testing.M) { coretest.Main(m) }
