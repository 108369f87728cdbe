package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/testskip"
)

// TestCheckOnALoopDevice: a queue on write through over a cache is critical, by what the layers say and by what is
// measured; on write back the flushes arrive.
func TestCheckOnALoopDevice(t *testing.T) {
	testskip.LoopBench(t)
	for _, program := range []string{"losetup", "unshare", "mkfs.ext4"} {
		testskip.Program(t, program, "mount util-linux e2fsprogs")
	}
	// In a mount namespace of its own, so that nothing stays mounted whatever happens.
	const script = `set -e
cd "$1"
truncate -s 64M img
dev=$(losetup -f --show img)
trap 'umount mnt 2>/dev/null || true; losetup -d "$dev"' EXIT
mkfs.ext4 -q "$dev"
mkdir mnt
mount "$dev" mnt
echo "$2" >/sys/block/${dev#/dev/}/queue/write_cache
code=0
"$3" check --data-dir "$1/mnt" --measure 20 --facts || code=$?
echo "code $code"
`
	for cache, c := range map[string]struct {
		code string
		says []string
	}{
		"write through": {"code 2", []string{"CRITICAL - an acknowledged commit can be lost in a power cut because loop loop", "flushes measured: 0 for 20 fsyncs"}},
		// What lies below the image file is this machine's, of which something may be unknown.
		"write back": {"code ", []string{" for 20 fsyncs"}},
	} {
		t.Run(cache, func(t *testing.T) {
			dir := t.TempDir()
			out, err := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", dir, cache, binary).CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), c.code)
			for _, text := range c.says {
				assert.Contains(t, string(out), text)
			}
			if cache == "write back" {
				assert.NotContains(t, string(out), "CRITICAL")
				assert.NotContains(t, string(out), "flushes measured: 0 ")
			}
			left, err := exec.Command("losetup", "-j", filepath.Join(dir, "img")).Output()
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}
