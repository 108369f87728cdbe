package secretfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	write := func(text string, mode os.FileMode) string {
		path := filepath.Join(t.TempDir(), "pw")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	for name, c := range map[string]struct {
		text, want string
		mode       os.FileMode
		fails      bool
	}{
		"newline":        {"hunter2\n", "hunter2", 0o600, false},
		"two newlines":   {"hunter2\n\n", "hunter2\n", 0o400, false},
		"spaces kept":    {" hunter2 ", " hunter2 ", 0o600, false},
		"CRLF":           {"hunter2\r\n", "hunter2", 0o600, false},
		"group may read": {"hunter2", "", 0o640, true},
		"others may":     {"hunter2", "", 0o604, true},
		"too long":       {strings.Repeat("x", Most+1), "", 0o600, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(write(c.text, c.mode))
			assert.Equal(t, c.fails, err != nil)
			assert.Equal(t, c.want, got)
			if err != nil {
				assert.NotContains(t, err.Error(), "hunter2")
			}
		})
	}
	_, err := Read(t.TempDir())
	assert.Error(t, err, "a folder")
}
