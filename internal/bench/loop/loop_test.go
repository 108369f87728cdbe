package loop

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"plugpull/internal/blockdev"
	"plugpull/internal/campaign"
	"plugpull/internal/mysqld"
	"plugpull/internal/report"
	"plugpull/internal/simdrive"
	"plugpull/internal/testskip"
	"plugpull/verifier"
)

// An honest drive loses nothing, on any filesystem and whatever is left of its cache.
func TestHonestDriveLosesNothing(t *testing.T) {
	testskip.LoopBench(t)
	dropped := int64(0)
	for _, name := range []string{"ext4", "xfs", "btrfs", "ext4-torn", "ext4-transfer", "xfs-churn", "ext4-cache-off", "ext4-capacitor"} {
		t.Run(name, func(t *testing.T) { dropped += honest(t, name, 3) })
	}
	assert.Positive(t, dropped, "no cut met volatile data: these cuts prove nothing")
}

// honest returns how much volatile data the cuts dropped, in bytes.
func honest(t *testing.T, name string, cycles int) (dropped int64) {
	sc := builtin(t, name)
	rep, all := newRun(t, &sc, 7, cycles, nil).do()
	assert.Zero(t, rep.Findings.Total()+rep.Witness.Findings.Total(), "seed 7: an honest drive was accused: %+v", rep.Findings)
	assert.Equal(t, cycles, len(all))
	assert.Positive(t, rep.Commits.Acked)
	assert.Positive(t, rep.Witness.Acked)
	for _, c := range all {
		assert.True(t, c.Cut.Proven)
		assert.Positive(t, c.Rows)
		var d Detail
		require.NoError(t, json.Unmarshal(c.Cut.Detail, &d))
		assert.Equal(t, blockdev.WriteCache(sc.Queue), d.Queue.WriteCache)
		dropped += d.Drive.VolatileBytes
		for _, part := range []string{"teardown", "attach", "mount", "recover", "load", "verify"} {
			assert.Positive(t, c.Split[part], part)
		}
	}
	return dropped
}

// Each way of losing acknowledged commits is seen at once, and put where it belongs.
func TestLossesAreCaught(t *testing.T) {
	for name, by := range map[string]string{
		"ext4-flush-ignored": report.AttributeDrive, "ext4-nobarrier": report.AttributeDrive, "xfs-no-flush": report.AttributeDrive,
		"btrfs-nobarrier": report.AttributeDrive, "ext4-trx-2": report.AttributeWhole, "ext4-weak-capacitor": report.AttributeDrive,
	} {
		t.Run(name, func(t *testing.T) {
			sc := builtin(t, name)
			r := newRun(t, &sc, 7, 2, nil)
			rep, all := r.do()
			assert.Equal(t, verifier.Lossy.String(), rep.Verdict)
			assert.Positive(t, rep.Findings.LostTail)
			assert.Equal(t, by, rep.Attribution)
			assert.Len(t, all, 2, "a lossy drive is made anew and the run goes on")
			assert.Positive(t, all[1].Split["renew"])
			assert.FileExists(t, filepath.Join(r.Folder.Path, "cycles/0001/database.log"))
			assert.NoFileExists(t, filepath.Join(r.Folder.Path, "cycles/0001/image.gz"), "it was expected")
		})
	}
}

// What the system does not take is a verdict of its own.
func TestRefused(t *testing.T) {
	for name, want := range map[string]string{
		"xfs-nobarrier":     "Unknown parameter 'nobarrier'",
		"ext4 no-such":      "no_such_option",
		"no such setting":   "server setting innodb_no_such_thing=1",
		"ext4 barrier=many": "barrier",
	} {
		t.Run(name, func(t *testing.T) {
			sc := builtin(t, "ext4")
			switch name {
			case "xfs-nobarrier":
				sc = builtin(t, name)
			case "ext4 no-such":
				sc.Filesystem.Mount = []string{"no_such_option"}
			case "ext4 barrier=many":
				sc.Filesystem.Mount = []string{"barrier=many"}
			}
			r := newRun(t, &sc, 7, 2, func(c *Config) {
				if name == "no such setting" {
					c.Settings["innodb_no_such_thing"] = "1"
				}
			})
			rep, all := r.do()
			assert.Equal(t, verifier.RefusedSetting.String(), rep.Verdict)
			assert.Contains(t, rep.Refusal, want)
			assert.Contains(t, rep.Headline(), want)
			assert.Empty(t, all)
		})
	}
}

// damaged runs one cycle whose drive is damaged between the cut and the power-on.
func damaged(t *testing.T, name string, damage func(t *testing.T, b *Bench)) (*run, *report.Run, *campaign.CycleResult) {
	t.Helper()
	return damagedOn(t, name, nil, damage)
}

func damagedOn(t *testing.T, name string, change func(*Config), damage func(t *testing.T, b *Bench)) (*run, *report.Run, *campaign.CycleResult) {
	t.Helper()
	sc := builtin(t, name)
	r := newRun(t, &sc, 7, 2, change)
	hurt := &hurting{Bench: r.b, damage: func() { damage(t, r.b) }}
	r.Bench = hurt
	rep, all := r.do()
	require.Len(t, all, 2)
	assert.Zero(t, all[1].Counts.Total(), "the drive was made anew, and what went with the old one is not counted again")
	return r, rep, all[0]
}

// hurting damages the drive after the first cut.
type hurting struct {
	*Bench
	damage func()
	done   bool
}

func (h *hurting) Cut(ctx context.Context) (campaign.Cut, error) {
	cut, err := h.Bench.Cut(ctx)
	if err == nil && !h.done {
		h.done = true
		err = h.Bench.tearDown(ctx)
		h.damage()
	}
	return cut, err
}

// overwrite damages the durable contents of a drive without power.
func overwrite(t *testing.T, b *Bench, off int64, p []byte) {
	t.Helper()
	h, err := b.drive.PowerOn()
	require.NoError(t, err)
	_, err = h.WriteFUA(p, off)
	require.NoError(t, err)
	b.drive.Cut()
}

// A filesystem that does not mount is a finding, with everything that it takes to look at it.
func TestMountThatFails(t *testing.T) {
	var before []byte
	r, rep, first := damaged(t, "ext4", func(t *testing.T, b *Bench) {
		image, err := b.drive.CutImage()
		require.NoError(t, err)
		before = make([]byte, 64<<10)
		_, err = image.ReadAt(before, 0)
		require.NoError(t, err)
		overwrite(t, b, 1024, make([]byte, 1024)) // the superblock
	})
	assert.Equal(t, verifier.Lossy.String(), rep.Verdict)
	assert.Equal(t, first.Acked, first.Counts.Unreadable, "all that was acknowledged lies on it")
	assert.Equal(t, first.WitnessAcked, first.Witness.Unreadable)
	assert.Contains(t, first.Unreadable[0], "does not mount again")
	assert.Equal(t, report.AttributeDrive, rep.Attribution)

	dir := filepath.Join(r.Folder.Path, "cycles/0001")
	look, err := os.ReadFile(filepath.Join(dir, "LOOK.txt"))
	require.NoError(t, err)
	assert.Contains(t, string(look), "mount -o loop,ro,noload image")
	f, err := os.Open(filepath.Join(dir, "image.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	image, err := io.ReadAll(z)
	require.NoError(t, err)
	assert.Len(t, image, int(r.b.c.Drive.Size))
	assert.Equal(t, make([]byte, 1024), image[1024:2048], "as the last cut left it, damage included")
	assert.Equal(t, before[2048:], image[2048:64<<10])
	kernel, err := os.ReadFile(filepath.Join(dir, "kernel.log"))
	require.NoError(t, err)
	assert.NotEmpty(t, kernel)
}

// A server that does not start on what a cut left is a finding; the witness beside it is read.
func TestServerThatDoesNotStart(t *testing.T) {
	r, rep, first := damaged(t, "ext4", func(t *testing.T, b *Bench) {
		require.NoError(t, b.powerOn(context.Background()))
		require.NoError(t, b.remount(context.Background()))
		require.NoError(t, b.limited(context.Background(), "damage", func(context.Context) error {
			return os.Truncate(b.path("mnt/data/ib_logfile0"), 1000)
		}))
		require.NoError(t, b.syncFilesystem(context.Background()))
		require.NoError(t, b.tearDown(context.Background()))
	})
	assert.Equal(t, verifier.Lossy.String(), rep.Verdict)
	assert.Equal(t, first.Acked, first.Counts.Unreadable)
	assert.Contains(t, first.Unreadable[0], "the server does not start again")
	assert.Zero(t, first.Witness.Total(), "the filesystem is whole")
	assert.Equal(t, report.AttributeWhole, rep.Attribution)
	log, err := os.ReadFile(filepath.Join(r.Folder.Path, "cycles/0001/database.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), "== after the cut")
	assert.FileExists(t, filepath.Join(r.Folder.Path, "cycles/0001/drive.log"))
}

// A table that InnoDB cannot read is a finding, in whatever way it fails: by an error, or by
// ending while it is asked.
func TestDamagedTable(t *testing.T) {
	ctx := context.Background()
	_, rep, first := damaged(t, "ext4", func(t *testing.T, b *Bench) {
		require.NoError(t, b.powerOn(ctx))
		require.NoError(t, b.remount(ctx))
		require.NoError(t, b.start(ctx))
		_, err := b.proc.Stop(ctx) // so that the redo log cannot mend what follows
		require.NoError(t, err)
		require.NoError(t, b.limited(ctx, "damage", func(context.Context) error {
			f, err := os.OpenFile(b.path("mnt/data/plugpull/append_1.ibd"), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 64<<10), 16<<10)
			return errors.Join(err, f.Close())
		}))
		require.NoError(t, b.syncFilesystem(ctx))
		require.NoError(t, b.tearDown(ctx))
	})
	assert.Equal(t, verifier.Lossy.String(), rep.Verdict)
	assert.Equal(t, first.Acked, first.Counts.Unreadable, "%+v %v %v", first.Counts, first.Reason, first.Error)
}

// A server that ends by itself while it is asked is a finding; one that somebody kills is none.
func TestServerThatDies(t *testing.T) {
	for _, c := range []struct {
		signal  syscall.Signal
		verdict string
	}{{syscall.SIGABRT, "lossy"}, {syscall.SIGKILL, "inconclusive"}} {
		t.Run(c.signal.String(), func(t *testing.T) {
			sc := builtin(t, "ext4")
			r := newRun(t, &sc, 7, 1, nil)
			r.Bench = &dying{r.b, c.signal}
			rep, err := r.Run(context.Background())
			assert.Equal(t, c.verdict, rep.Verdict, "%v", err)
			if c.signal == syscall.SIGKILL {
				assert.Zero(t, rep.Findings.Total())
				assert.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, rep.Commits.Acked, rep.Findings.Unreadable)
		})
	}
}

// dying ends its server when it is asked which run its schema belongs to.
type dying struct {
	*Bench
	signal syscall.Signal
}

func (d *dying) Database() campaign.Database { return &dyingDatabase{d.db, d} }

type dyingDatabase struct {
	*database
	d *dying
}

func (d *dyingDatabase) Run(ctx context.Context) (uuid.UUID, error) {
	if d.d.before != nil { // after the cut
		if err := d.d.proc.Signal(d.d.signal); err != nil {
			return uuid.Nil, err
		}
		<-d.d.proc.Exited()
	}
	return d.database.Run(ctx)
}

// A start that fails for a moment is the machine's, not the drive's.
func TestServerThatStartsAtTheSecondTry(t *testing.T) {
	testskip.LoopBench(t)
	ctx := context.Background()
	real, err := mysqld.Find(ctx, "")
	require.NoError(t, err)
	template, err := templates.of(ctx, real, nil)
	require.NoError(t, err)
	dir := t.TempDir()
	wrapped := mysqld.Install{Binary: dir + "/mariadbd"}
	templates.made[templateKey(wrapped, nil)] = template
	script := fmt.Sprintf("#!/bin/bash\nif [ -e %[1]s/fail ]; then rm %[1]s/fail; echo out of memory >&2; exit 1; fi\nexec %[2]s \"$@\"\n", dir, real.Binary)
	require.NoError(t, os.WriteFile(wrapped.Binary, []byte(script), 0o755))
	_, rep, first := damagedOn(t, "ext4", func(c *Config) { c.Binary = wrapped.Binary }, func(t *testing.T, _ *Bench) {
		require.NoError(t, os.WriteFile(dir+"/fail", nil, 0o600))
	})
	assert.NoFileExists(t, dir+"/fail", "it did fail once")
	assert.Zero(t, first.Counts.Total())
	assert.NotEqual(t, verifier.Lossy.String(), rep.Verdict)
}

// What somebody does to the queue in mid-run ends the run without a verdict on the drive.
func TestQueueThatIsChangedBehindOurBack(t *testing.T) {
	sc := builtin(t, "ext4")
	r := newRun(t, &sc, 7, 2, nil)
	r.Bench = &flipping{r.b}
	rep, err := r.Run(context.Background())
	require.ErrorContains(t, err, "somebody changed it")
	assert.Zero(t, rep.Findings.Total())
	assert.Equal(t, verifier.Inconclusive.String(), rep.Verdict)
}

// flipping tells the kernel that its drive has no cache.
type flipping struct{ *Bench }

func (f *flipping) Cut(ctx context.Context) (campaign.Cut, error) {
	if err := f.stack.loop.SetWriteCache(blockdev.WriteThrough); err != nil {
		return campaign.Cut{}, err
	}
	return f.Bench.Cut(ctx)
}

// What a verification outside of the cycles finds counts as well: here on the witness, when the run is
// ended early.
func TestFindingsOutsideOfCyclesCount(t *testing.T) {
	sc := builtin(t, "ext4")
	sc.Verify.Last = 1
	r := newRun(t, &sc, 7, 9, nil)
	stop := make(chan struct{})
	r.Stop = stop
	r.Bench = &spoiling{Bench: r.b, then: func() { close(stop) }}
	rep, err := r.Run(context.Background())
	require.ErrorIs(t, err, campaign.ErrInterrupted)
	assert.Equal(t, uint64(1), rep.Witness.Findings.Corrupt, "%+v", rep.Witness.Findings)
	assert.Equal(t, verifier.Lossy.String(), rep.Verdict)
	assert.Equal(t, report.AttributeDrive, rep.Attribution)
}

// spoiling damages the oldest record of the witness once five cycles are over, and ends the run.
type spoiling struct {
	*Bench
	then func()
	cuts int
}

func (s *spoiling) Restore(ctx context.Context) error {
	err := s.Bench.Restore(ctx)
	if s.cuts++; s.cuts != 5 || err != nil {
		return err
	}
	defer s.then()
	f, err := s.openWitness()
	if err != nil {
		return err
	}
	buf := make([]byte, 3*4096)
	at := 4096 - int(uintptr(unsafe.Pointer(&buf[0]))%4096)
	copy(buf[at:], "garbage")
	_, err = f.WriteAt(buf[at:at+4096], 0)
	return errors.Join(err, f.Close())
}

// The cut proves itself: from one instant nothing reaches the drive.
func TestNothingIsWrittenAfterTheCut(t *testing.T) {
	sc := builtin(t, "ext4-nobarrier") // much is dirty in the host's memory
	r := newRun(t, &sc, 7, 1, nil)
	require.NoError(t, r.b.Renew(context.Background(), 1))
	require.NoError(t, r.b.limited(context.Background(), "write", func(context.Context) error {
		return os.WriteFile(r.b.path("mnt/dirty"), make([]byte, 20<<20), 0o600)
	}))
	_, err := r.b.Cut(context.Background())
	require.NoError(t, err)
	require.NoError(t, r.b.tearDown(context.Background()))
	assert.Zero(t, r.b.drive.WrittenSinceCut())
	assert.Positive(t, r.b.wire.Stats().NoPower.Writes, "the filesystem did try")
	assert.Equal(t, simdrive.SurviveNone, r.b.c.Drive.Survive)
}
