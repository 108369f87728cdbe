package mysqld

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func mustAddr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func TestVersions(t *testing.T) {
	tests := []struct {
		text    string
		flavour Flavour
		version Version
	}{
		{"mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)", MariaDB, Version{10, 11, 6}},
		{"/opt/bin/mysqld  Ver 10.6.22-MariaDB-log for Linux on x86_64 (MariaDB Server)", MariaDB, Version{10, 6, 22}},
		{"mariadbd from 12.0.2-MariaDB, for debian-linux-gnu (x86_64)", MariaDB, Version{12, 0, 2}},
		{"mysqld  Ver 5.7.44 for Linux on x86_64 (MySQL Community Server (GPL))", MySQL, Version{5, 7, 44}},
		{"/usr/sbin/mysqld  Ver 8.0.36 for Linux on x86_64 (MySQL Community Server - GPL)", MySQL, Version{8, 0, 36}},
		{"/usr/sbin/mysqld  Ver 8.4.6-0ubuntu1 for Linux on aarch64 ((Ubuntu))", MySQL, Version{8, 4, 6}},
		{"mysqld  Ver 8.0.36-28 for Linux on x86_64 (Percona Server (GPL), Release 28, Revision 47601f19)", MySQL, Version{8, 0, 36}},
	}
	for _, tt := range tests {
		flavour, version, err := parseVersion(tt.text)
		require.NoError(t, err, tt.text)
		assert.Equal(t, tt.flavour, flavour, tt.text)
		assert.Equal(t, tt.version, version, tt.text)
	}
	for _, text := range []string{"", "mysqld Ver 8.0", "postgres (PostgreSQL) 16.2", "tool Ver 1.2.3 for Linux"} {
		_, _, err := parseVersion(text)
		assert.ErrorIs(t, err, ErrUnknownServer, text)
	}
	v := Version{8, 0, 30}
	assert.True(t, v.AtLeast(8, 0, 30) && v.AtLeast(8, 0, 4) && v.AtLeast(5, 7, 44))
	assert.False(t, v.AtLeast(8, 0, 31) || v.AtLeast(8, 4, 0) || v.AtLeast(9, 0, 0))
}

// program writes a script that prints text.
func program(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho '"+text+"'\n"), 0o755))
	return path
}

func TestFindTakesTheInstallerBesideTheBinary(t *testing.T) {
	dir := t.TempDir()
	const text = "mariadbd  Ver 11.8.3-MariaDB for Linux on x86_64 (MariaDB Server)"
	binary := program(t, filepath.Join(dir, "sbin/mariadbd"), text)
	inst := program(t, filepath.Join(dir, "bin/mariadb-install-db"), "")
	link := filepath.Join(dir, "mariadbd-11")
	require.NoError(t, os.Symlink(binary, link))
	for _, asked := range []string{binary, link} {
		in, err := Find(context.Background(), asked)
		require.NoError(t, err)
		assert.Equal(t, inst, in.InstallDB, "not the one of another install in PATH")
		assert.Equal(t, MariaDB, in.Flavour)
		assert.Equal(t, Version{11, 8, 3}, in.Version)
		assert.Equal(t, text, in.Text)
	}
	t.Setenv("PATH", filepath.Dir(binary)+":/usr/bin:/bin")
	in, err := Find(context.Background(), "")
	require.NoError(t, err)
	assert.Equal(t, binary, in.Binary, "PATH comes before the usual places")
}

func TestFindSaysWhatIsMissing(t *testing.T) {
	_, err := Find(context.Background(), "/no/such/mariadbd")
	require.ErrorIs(t, err, ErrNotInstalled)
	assert.ErrorContains(t, err, "apt-get install mariadb-server")
	assert.ErrorContains(t, err, "/no/such/mariadbd")
	_, err = Find(context.Background(), program(t, filepath.Join(t.TempDir(), "mysqld"), "hello"))
	assert.ErrorIs(t, err, ErrUnknownServer)
}
