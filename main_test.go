package dlock_test

import (
	"testing"

	"github.com/dlock-go/dlock/internal/coretest"
)

func TestMain(m *testing.M) { coretest.Main(m) }
