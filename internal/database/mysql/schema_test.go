package mysql

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/ledger"
	"plugpull/internal/workload"
)

func TestPrepare(t *testing.T) {
	s := sharedServer(t)
	d, p := prepared(t, s.Port(), workload.Transfer, Options{})
	require.NoError(t, d.Prepare(ctx(t), p, 1), "a second time")
	require.NoError(t, d.Prepare(ctx(t), p, 2), "the next epoch")
	assert.Equal(t, 6, queryInt(t, d, "SELECT COUNT(*) FROM information_schema.TABLES WHERE ENGINE='InnoDB' AND TABLE_NAME LIKE 'transfer%' AND TABLE_SCHEMA='"+d.dsn.Schema+"'"))
	runs, err := d.Runs(ctx(t))
	require.NoError(t, err)
	assert.Equal(t, []uuid.UUID{p.Run}, runs)

	other := p
	other.Run = uuid.New()
	var otherRun *OtherRunError
	err = d.Prepare(ctx(t), other, 1)
	require.ErrorAs(t, err, &otherRun)
	assert.Contains(t, err.Error(), p.Run.String())
	assert.Contains(t, err.Error(), other.Run.String())
	assert.Contains(t, err.Error(), "plugpull clean")

	do(t, d, "ALTER TABLE "+d.quoted("transfer_a_1")+" ENGINE=Aria")
	var engine *EngineError
	require.ErrorAs(t, d.Prepare(ctx(t), p, 1), &engine)
	assert.Equal(t, "transfer_a_1", engine.Table)
}

func TestEmptyPayloads(t *testing.T) {
	d, err := Open(testDSN(uint16(sharedServer(t).Port())), Options{})
	require.NoError(t, err)
	for _, profile := range workload.Profiles() {
		p := workload.Params{Run: uuid.New(), Profile: profile, Window: workload.MinWindow}
		require.NoError(t, d.Prepare(ctx(t), p, 1))
		c := dial(t, d, p)
		for n := workload.Seq(1); n <= 20; n++ {
			r := c.Commit(ctx(t), op(n))
			require.Equal(t, ledger.Acked, r.Outcome, "%v", r.Err)
		}
		for _, r := range readAll(t, survivors(t, d), profile.Tables()[0], 1, 0) {
			require.True(t, p.Intact(&r))
		}
		require.NoError(t, d.Drop(ctx(t)))
	}
}

func TestDropRemovesOnlyWhatIsPlugpulls(t *testing.T) {
	s := sharedServer(t)
	d, p := prepared(t, s.Port(), workload.Append, Options{})
	var foreign *ForeignTableError
	for name, c := range map[string]struct{ make, drop, says string }{
		"table":   {"CREATE TABLE " + d.quoted("customers") + " (a INT)", "DROP TABLE " + d.quoted("customers"), "customers"},
		"similar": {"CREATE TABLE " + d.quoted("append_1_old") + " (a INT)", "DROP TABLE " + d.quoted("append_1_old"), "append_1_old"},
		"view":    {"CREATE VIEW " + d.quoted("v") + " AS SELECT 1", "DROP VIEW " + d.quoted("v"), "v"},
		"routine": {"CREATE PROCEDURE " + d.quoted("proc") + "() SELECT 1", "DROP PROCEDURE " + d.quoted("proc"), "proc"},
	} {
		t.Run(name, func(t *testing.T) {
			do(t, d, c.make)
			require.ErrorAs(t, d.Drop(ctx(t)), &foreign)
			assert.Equal(t, c.says, foreign.Table)
			require.ErrorAs(t, d.Prepare(ctx(t), p, 1), &foreign, "nothing is added to a foreign schema")
			do(t, d, c.drop)
		})
	}
	do(t, d, "DROP TABLE "+d.quoted(runTable))
	require.ErrorAs(t, d.Drop(ctx(t)), &foreign, "tables of the right names without a run")
	require.NoError(t, d.Prepare(ctx(t), p, 1))
	require.NoError(t, d.Drop(ctx(t)))
	assert.Zero(t, queryInt(t, d, "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME='"+d.dsn.Schema+"'"))
	require.NoError(t, d.Drop(ctx(t)), "nothing there")
}

// A user with exactly the printed privileges, over TCP with a password, can
// do everything.
func TestLeastGrantSuffices(t *testing.T) {
	s := sharedServer(t)
	root, err := Open(testDSN(uint16(s.Port())), Options{})
	require.NoError(t, err)
	do(t, root, "CREATE OR REPLACE USER least@'127.0.0.1' IDENTIFIED BY 'p@ss/w?rd'")
	dsn := root.DSN()
	dsn.User = "least"
	dsn.SetPassword("p@ss/w?rd")
	d, err := Open(dsn, Options{})
	require.NoError(t, err)

	p := workload.Params{Run: uuid.New(), Profile: workload.Transfer, PayloadMax: 30, Window: workload.MinWindow}
	var priv *PrivilegeError
	err = d.Prepare(ctx(t), p, 1)
	require.ErrorAs(t, err, &priv)
	assert.Contains(t, err.Error(), "GRANT CREATE, DROP, SELECT, INSERT, UPDATE, DELETE ON `"+strings.ReplaceAll(dsn.Schema, "_", `\_`)+"`.* TO 'least'@'%'")
	assert.NotContains(t, err.Error(), "p@ss")

	do(t, root, GrantText(dsn.Schema, "least@'127.0.0.1'"))
	for _, profile := range workload.Profiles() {
		p.Profile = profile
		require.NoError(t, d.Prepare(ctx(t), p, 1))
		require.NoError(t, d.Prepare(ctx(t), p, 2))
		fill(t, d, p, 2, 20)
		sv := survivors(t, d)
		for _, table := range profile.Tables() {
			streams, err := sv.Streams(ctx(t), table)
			require.NoError(t, err)
			require.Len(t, streams, 2)
			require.NotEmpty(t, readAll(t, sv, table, 2, 0))
		}
	}
	c := dial(t, d, p)
	left, err := d.ConnectionsLeft(ctx(t), []uint64{c.ID(), 1 << 40})
	require.NoError(t, err)
	assert.Equal(t, []uint64{c.ID()}, left)
	require.NoError(t, d.PutToken(ctx(t), 1, 1<<64-1))
	state, err := d.TokenState(ctx(t), 1<<64-1)
	require.NoError(t, err)
	assert.Equal(t, TokenPresent, state)
	_, err = d.Identity(ctx(t))
	require.NoError(t, err)
	_, err = d.Settings(ctx(t))
	require.NoError(t, err)
	_, err = d.Wait(ctx(t), time.Second)
	require.NoError(t, err)
	_, err = d.Runs(ctx(t))
	require.NoError(t, err)
	require.NoError(t, d.Drop(ctx(t)))
}

func TestTokenIsGoneAfterARestartOnly(t *testing.T) {
	s := ownServer(t)
	d, p := prepared(t, s.Port(), workload.Append, Options{})
	id, err := d.Identity(ctx(t))
	require.NoError(t, err)
	require.NoError(t, d.PutToken(ctx(t), 3, 42))
	c := dial(t, d, p)
	require.NoError(t, c.Close())
	eventually(t, "the connection's end", func() bool {
		left, err := d.ConnectionsLeft(ctx(t), []uint64{c.ID()})
		return err == nil && len(left) == 0
	})
	state, err := d.TokenState(ctx(t), 42)
	require.NoError(t, err)
	assert.Equal(t, TokenPresent, state)

	require.NoError(t, s.Kill())
	state, err = d.TokenState(ctx(t), 42)
	require.Error(t, err, "no server: nothing is known")
	assert.Zero(t, state)
	require.NoError(t, s.Restart(ctx(t)))
	state, err = d.TokenState(ctx(t), 42)
	require.NoError(t, err)
	assert.Equal(t, TokenGone, state)

	again, err := d.Identity(ctx(t))
	require.NoError(t, err)
	require.Equal(t, id, again)
	do(t, d, "DROP TABLE "+d.quoted(tokenTable))
	state, err = d.TokenState(ctx(t), 42)
	require.NoError(t, err)
	assert.Equal(t, TokenUnreadable, state)
}
