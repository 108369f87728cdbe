package testserver

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServerKeepsItsDataOverKillAndRestart(t *testing.T) {
	NeedMariaDB(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := Start(ctx, Options{Dir: t.TempDir(), Init: []string{"CREATE DATABASE IF NOT EXISTS made_at_start"}})
	require.NoError(t, err)
	defer s.Close()

	assert.DirExists(t, s.Datadir()+"/made_at_start")
	port, pid := s.Port(), s.PID()
	require.NoError(t, s.Kill())
	require.NoError(t, s.Kill(), "a second kill does nothing")
	assert.False(t, greets(ctx, s.Socket()))

	require.NoError(t, s.Restart(ctx))
	assert.Equal(t, port, s.Port())
	assert.NotEqual(t, pid, s.PID())
	assert.True(t, greets(ctx, s.Socket()))
	require.NoError(t, s.Stop(ctx))
	assert.Contains(t, s.Log(5000), "Shutdown complete")
	require.NoError(t, s.Close())
	_, err = os.Stat(s.Datadir())
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestStartSaysWhyTheServerDidNotStart(t *testing.T) {
	NeedMariaDB(t)
	_, err := Start(context.Background(), Options{Dir: t.TempDir(), Args: []string{"--no-such-option"}})
	require.Error(t, err)
	assert.Contains(t, err.Error(), "no-such-option", "the log is part of the error")
}

type fakeTB struct{ skipped, failed bool }

func (f *fakeTB) Helper()               {}
func (f *fakeTB) Skipf(string, ...any)  { f.skipped = true }
func (f *fakeTB) Fatalf(string, ...any) { f.failed = true }

func TestNeedMariaDBFailsWhereSkippingIsForbidden(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var skip, fail fakeTB
	NeedMariaDB(&skip)
	assert.True(t, skip.skipped)
	t.Setenv("PLUGPULL_NO_SKIP", "1")
	NeedMariaDB(&fail)
	assert.True(t, fail.failed)
}
