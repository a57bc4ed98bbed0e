package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWatchPrintsErrorsAsJSON(t *testing.T) {
	for _, text := range []string{"connection refused", "\x1b[2J \a \v \u2028"} {
		var out bytes.Buffer
		w := &watch{p: &Program{Stdout: &out}, json: true}
		require.NoError(t, w.show(nil, 0, errors.New(text), false))
		var event struct{ Time, Error string }
		require.NoError(t, json.Unmarshal(out.Bytes(), &event), "%s", &out)
		assert.Equal(t, text, event.Error)
		assert.NotEmpty(t, event.Time)
	}
}
