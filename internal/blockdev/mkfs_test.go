package blockdev

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMakeArguments(t *testing.T) {
	for _, test := range []struct {
		name, kind    string
		options, want []string
	}{
		{"none", "ext4", nil, []string{"-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"}},
		{"mke2fs heeds the last -E only", "ext4", []string{"-E", "stride=4", "-b", "4096"},
			[]string{"-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0,stride=4", "-b", "4096"}},
		{"xfs", "xfs", []string{"-m", "reflink=0"}, []string{"-q", "-f", "-K", "-m", "reflink=0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, makers[test.kind].merge(test.options))
			require.Equal(t, test.want, makers[test.kind].merge(test.options), "the table is as it was")
		})
	}
}

func TestMake(t *testing.T) {
	needRoot(t)
	for kind := range makers {
		t.Run(kind, func(t *testing.T) {
			l, path := device(t, kind)
			makeFS(t, FS{Type: kind}, l.Path()) // over what is there
			out, err := exec.Command("blkid", "--probe", "--output", "value", "--match-tag", "TYPE", path).Output()
			require.NoError(t, err)
			require.Equal(t, kind+"\n", string(out))
			inNamespace(t, func(dir string) {
				_, err := Mount(l.Path(), dir, FS{Type: kind})
				require.NoError(t, err)
				require.Error(t, Make(testContext(t), FS{Type: kind}, l.Path()), "it is mounted")
			})
		})
	}
}

func TestMakeErrors(t *testing.T) {
	require.Error(t, Make(context.Background(), FS{Type: "ntfs"}, os.DevNull))
	_, err := FindProgram("mkfs.wibble", "wibble-utils")
	var missing *NotInstalledError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, "wibble-utils", missing.Package)

	t.Setenv("PATH", "/nonexistent")
	path := image(t, 1)
	err = Make(context.Background(), FS{Type: "xfs"}, path)
	if !errors.As(err, &missing) { // found without PATH
		require.ErrorContains(t, err, "too small", "what the program said")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, Make(ctx, FS{Type: "ext4"}, path), context.Canceled)
}
