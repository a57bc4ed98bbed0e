package leases

import (
	"testing"

	"github.com/dlock-go/dlock/internal/coretest"
)

const (
	ttl    = coretest.TTL
	askGap = coretest.AskGap
)

func TestMain(m *testing.M) { coretest.Main(m) }
