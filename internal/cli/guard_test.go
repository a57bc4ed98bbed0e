//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The guard kills the command when its time is over, and when dlock run has died without dismissing it.
func TestWhenTheGuardKills(t *testing.T) {
	for text, kills := range map[string]bool{
		"done\n": false, "command 7\nend 1h0m0s\ndone\n": false,
		"": true, "don": true, "command 7\nend 1h0m0s\n": true, "command 7\nend 1h0m0s\nend 0s\nwait": true,
	} {
		read, write := io.Pipe()
		defer write.Close()
		go func() {
			io.WriteString(write, text)
			if !strings.HasSuffix(text, "wait") { // else dlock run lives
				write.Close()
			}
		}()
		command, kill := obey(read)
		assert.Equal(t, kills, kill, "%q", text)
		assert.Equal(t, strings.HasPrefix(text, "command 7"), command == 7, "%q", text)
	}
}
