package lifecycle

import (
	"testing"

	"github.com/dlock-go/dlock/internal/coretest"
)

const (
	ttl      = coretest.TTL
	waitTTL  = coretest.WaitTTL
	askEvery = coretest.AskEvery
)

func TestMain(m *testing.M) { coretest.Main(m) }
