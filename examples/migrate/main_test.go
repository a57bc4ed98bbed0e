package main

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/postgrestest"
)

// Of several instances one migrates. The others wait, and have nothing to do.
func TestOneMigrates(t *testing.T) {
	url := postgrestest.Start(t).URL()
	printed := make([]string, 4)
	var wg sync.WaitGroup
	for i := range printed {
		wg.Go(func() {
			var out bytes.Buffer
			assert.NoError(t, run(t.Context(), []string{"-url", url}, &out))
			printed[i] = strings.TrimSpace(out.String())
		})
	}
	wg.Wait()
	slices.Sort(printed)
	assert.Equal(t, []string{"0 steps done", "0 steps done", "0 steps done", "3 steps done"}, printed)

	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer db.Close(t.Context())
	var price int
	require.NoError(t, db.QueryRow(t.Context(), "SELECT price FROM article WHERE sku = 'mug'").Scan(&price))
	assert.Equal(t, 1200, price)

	// A step that fails leaves the steps before it done.
	steps = append(steps, "no such statement")
	defer func() { steps = steps[:len(steps)-1] }()
	var out bytes.Buffer
	assert.ErrorContains(t, run(t.Context(), []string{"-url", url}, &out), "step 3: ")
	assert.Equal(t, "0 steps done\n", out.String())
}
