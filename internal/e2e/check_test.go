package e2e

import (
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/bench/loop"
	"plugpull/internal/database/mysql"
	"plugpull/internal/hostcheck"
	"plugpull/internal/testskip"
	"plugpull/scenarios"
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

// On the loop bench's own drive, whose cache is on: what is read of the queue, and what --measure counts, agree with
// the flushes that the drive was sent.
func TestCheckOnTheLoopBench(t *testing.T) {
	testskip.LoopBench(t)
	nsenter := testskip.Program(t, "nsenter", "util-linux")
	templates, err := loop.NewTemplates()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, templates.Close()) })
	const fsyncs = 20
	for _, queue := range []scenarios.WriteCache{scenarios.WriteBack, scenarios.WriteThrough} {
		t.Run(string(queue), func(t *testing.T) {
			sc, err := scenarios.Load("ext4")
			require.NoError(t, err)
			sc.Queue = queue
			c := loop.ConfigOf(&sc, 1, 10*time.Second, "")
			c.Templates = templates
			b, err := loop.New(t.Context(), c)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			require.NoError(t, b.Renew(t.Context(), 1))
			datadir, pid := serverOn(t, b)

			// Its mount is in a namespace of the bench's own.
			out, code := said(t, nsenter, "-t", pid, "-m", binary, "check", "--data-dir", datadir, "--measure", strconv.Itoa(fsyncs), "--facts")
			m := regexp.MustCompile(`flushes measured: (\d+) for 20 fsyncs`).FindStringSubmatch(out)
			require.NotNil(t, m, out)
			counted, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			if queue == scenarios.WriteThrough {
				assert.Equal(t, int(hostcheck.Critical), code, out)
				assert.Contains(t, out, "flushes do not take effect in it")
				assert.Zero(t, counted)
			} else {
				assert.NotEqual(t, int(hostcheck.Critical), code, out)
				assert.GreaterOrEqual(t, counted, fsyncs, "each fsync had a flush")
			}
		})
	}
}

// serverOn returns a bench's data folder and the process of its server.
func serverOn(t *testing.T, b *loop.Bench) (datadir, pid string) {
	t.Helper()
	db, ok := b.Database().(interface{ DSN() mysql.DSN })
	require.True(t, ok)
	d, err := mysql.Open(db.DSN(), mysql.Options{})
	require.NoError(t, err)
	require.NoError(t, d.Control(t.Context(), func(c *sql.Conn) error {
		return c.QueryRowContext(t.Context(), "SELECT @@datadir").Scan(&datadir)
	}))
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), "--datadir="+strings.TrimSuffix(datadir, "/")) && strings.Contains(string(text), "mariadbd") {
			pid = filepath.Base(filepath.Dir(file))
		}
	}
	require.NotEmpty(t, pid, "no server has %s", datadir)
	return datadir, pid
}
