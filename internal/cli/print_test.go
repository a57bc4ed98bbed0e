package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/lockview"
)

// What another process has written cannot control the operator's terminal.
func TestInspectPrintsNoControlSequences(t *testing.T) {
	const clears = "\x1b[2J"
	var out strings.Builder
	require.NoError(t, describe(&out, lockview.Lock{Name: "a", Holders: []lockview.Entry{
		{ID: "id" + clears, Owner: "owner" + clears, Label: "label" + clears, Mode: "exclusive", Token: 1},
	}}))
	for _, field := range []string{"id?[2J", "owner?[2J", "label?[2J"} {
		assert.Contains(t, out.String(), field)
	}
	assert.NotContains(t, out.String(), "\x1b")
}
