// Package loop is the bench of a real server on a real filesystem on the simulated
// drive: a FUSE file is the drive, a loop device lies on it, a filesystem is made and
// mounted on that, and a MariaDB or MySQL server runs on it as a process.
//
// It guarantees that the cut comes first: from one instant the drive fails every
// request and what was volatile is gone, before the server is killed or anything else learns of
// it. That is the proof that a verdict rests on. No write reaches the drive's durable
// contents between the cut and the next power-on; they are counted, and one
// would be an error. Nothing is repaired: the filesystem replays its journal when it
// is mounted, and the server recovers by itself.
//
// What the machine refuses or lacks is never a finding: a mount or a server that fails is
// evidence only after the same has worked with the same settings, on files of its own,
// at that moment. All mounts are in a mount namespace of the process, loop devices
// detach themselves, and servers die with it, so that a kill -9 leaves nothing but a folder.
package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"plugpull/internal/blockdev"
	"plugpull/internal/campaign"
	"plugpull/internal/clock"
	"plugpull/internal/mysqld"
	"plugpull/internal/simdrive"
	"plugpull/internal/simdrive/fuse"
	"plugpull/internal/usage"
	"plugpull/internal/witness"
	"plugpull/scenarios"
)

// Config of a Bench.
type Config struct {
	Seed uint64
	// Drive is the drive, but for its seed, clock, base and log.
	Drive simdrive.Config
	// Image is the file that holds the drive's durable contents; empty: they are in memory.
	Image      string
	WriteCache blockdev.WriteCache // what the kernel believes
	Filesystem string
	Mkfs       []string
	Mount      []string
	Binary     string // of the server; empty: the first that is found
	Settings   map[string]string
	Silence    time.Duration // of the streams' connections
	// Templates is shared by the benches of a process; nil: the bench has its own.
	Templates *Templates
	// Device stands between the wire and the drive in tests; nil is the drive's own handle.
	Device func(*simdrive.Handle) fuse.Device
	// Limit bounds each step of taking the stack down; after it the FUSE connection is
	// aborted, so that nothing that hangs is left. Zero is 30 s.
	Limit time.Duration
}

// ConfigOf returns the bench that a scenario asks for; image is where the drive's file may lie.
func ConfigOf(sc *scenarios.Scenario, seed uint64, silence time.Duration, image string) Config {
	c := Config{
		Seed:       seed,
		Drive:      sc.Drive.Config(),
		WriteCache: blockdev.WriteCache(sc.Queue),
		Filesystem: sc.Filesystem.Type, Mkfs: sc.Filesystem.Mkfs, Mount: sc.Filesystem.Mount,
		Binary: sc.MySQL.Binary, Settings: map[string]string{}, Silence: silence,
	}
	for _, s := range sc.MySQL.Settings {
		c.Settings[s.Name] = s.Value
	}
	if sc.Drive.InFile {
		c.Image = image
	}
	return c
}

// startLimit bounds the wait for a server's greeting: a recovery that takes longer than
// this on a drive in memory has hung.
const startLimit = 2 * time.Minute

// Bench implements campaign.Renewing.
type Bench struct {
	c       Config
	dir     string // of this process alone, also its lock
	lock    *os.File
	ns      *blockdev.Namespace
	kernel  *blockdev.KernelLog
	install mysqld.Install
	wire    *fuse.Server
	base    *os.File // of Config.Image
	own     *Templates

	drive  *simdrive.Drive
	stack  *stack // nil while the filesystem is not mounted
	server *mysqld.Server
	db     *database
	proc   *mysqld.Process
	before *mysqld.Process // of the load before the last cut

	hung    atomic.Bool // the drive's connection was aborted: nothing works any more
	broken  error       // of the machine, found at the last cut: no verdict can rest on it
	cut     atomic.Bool // from just before the cut to the power-on
	split   map[string]time.Duration
	witness *witness.Witness
	said    []blockdev.Message // by the kernel of this device, since the last cut
}

// New prepares a bench and changes nothing outside a folder of its own. Errors of the machine
// (no root, no FUSE, no server) say what is missing. Close takes everything down.
func New(ctx context.Context, c Config) (_ *Bench, err error) {
	if c.Limit == 0 {
		c.Limit = 30 * time.Second
	}
	b := &Bench{c: c}
	b.witness = &witness.Witness{Open: b.openWitness, Now: clock.Now}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("loop bench: %w", err), b.Close())
		}
	}()
	if b.install, err = mysqld.Find(ctx, c.Binary); err != nil {
		return nil, usage.Wrap(err)
	}
	if err := b.makeFolder(); err != nil {
		return nil, err
	}
	// Without the kernel's log there is less to show, and no less to find.
	b.kernel, _ = blockdev.OpenKernelLog()
	if b.ns, err = blockdev.NewNamespace(); err != nil {
		return nil, err
	}
	if b.c.Templates == nil {
		if b.own, err = NewTemplates(); err != nil {
			return nil, err
		}
		b.c.Templates = b.own
	}
	if c.Image != "" {
		if b.base, err = os.OpenFile(c.Image, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return nil, fmt.Errorf("the drive's file: %w", err)
		}
	}
	return b, b.ns.Do(func() error {
		if b.wire, err = fuse.Mount(b.path("drive"), c.Drive.Size); err != nil {
			return fmt.Errorf("FUSE, through /dev/fuse: %w (plugpull doctor says what is missing here)", err)
		}
		return nil
	})
}

func (b *Bench) path(name string) string { return filepath.Join(b.dir, name) }

// Database implements campaign.Bench; there is one once the bench has been renewed.
func (b *Bench) Database() campaign.Database { return b.db }

// Ready implements campaign.Bench: Renew does the work.
func (b *Bench) Ready(context.Context) error { return nil }

// Leave implements campaign.Bench: nothing real was switched.
func (b *Bench) Leave(context.Context) error { return nil }

// Detail is the bench's own record of a cut.
type Detail struct {
	Drive simdrive.CutReport `json:"drive"`
	Stats simdrive.Stats     `json:"stats"` // of the drive, when it was cut
	Loop  string             `json:"loop"`
	Queue blockdev.Queue     `json:"queue"` // as read back at the cut
	Mount []string           `json:"mount"` // the filesystem's options as read back
}

// Cut implements campaign.Bench: the drive first, then the server's process.
func (b *Bench) Cut(ctx context.Context) (campaign.Cut, error) {
	cut := campaign.Cut{Commanded: clock.Now()}
	b.cut.Store(true)
	report := b.drive.Cut()
	cut.Observed, cut.Proven = clock.Now(), true
	b.before = b.proc
	err := b.killServer(ctx)
	detail := Detail{Drive: report, Stats: b.drive.Stats(), Loop: b.stack.loop.Name(), Mount: b.stack.mount.FSOptions}
	var qerr error
	if detail.Queue, qerr = b.stack.loop.Queue(); qerr != nil {
		qerr = fmt.Errorf("read the queue back: %w", qerr)
	} else if detail.Queue.WriteCache != b.c.WriteCache {
		qerr = fmt.Errorf("the kernel believes %q of %s, and was told %q: somebody changed it", detail.Queue.WriteCache, detail.Loop, b.c.WriteCache)
	}
	var jerr error
	cut.Detail, jerr = json.Marshal(detail)
	if b.broken = errors.Join(err, qerr, jerr); b.broken != nil {
		cut.Proven = false
	}
	return cut, b.broken
}

// Restore implements campaign.Bench: take down what is left of the old stack, power the drive,
// attach, mount, start the server and wait until it has recovered.
func (b *Bench) Restore(ctx context.Context) error {
	if b.broken != nil {
		return b.broken
	}
	b.split = map[string]time.Duration{}
	phase := clock.Now()
	took := func(name string) {
		now := clock.Now()
		b.split[name], phase = now.Sub(phase), now
	}
	if err := b.tearDown(ctx); err != nil {
		return err
	}
	if n := b.drive.WrittenSinceCut(); n > 0 {
		return fmt.Errorf("%d blocks reached the drive's durable contents without power: this bench is broken, and no verdict can rest on it", n)
	}
	took("teardown")
	if err := b.powerOn(ctx); err != nil {
		return err
	}
	took("attach")
	if err := b.remount(ctx); err != nil {
		return err
	}
	took("mount")
	err := b.restart(ctx)
	took("recover")
	return err
}

// RestoreSplit implements campaign.Splitting.
func (b *Bench) RestoreSplit() map[string]time.Duration { return b.split }

// rand returns the generator for what is made anew for a cycle.
func (b *Bench) rand(cycle uint32) *rand.Rand {
	return rand.New(rand.NewPCG(b.c.Seed, uint64(cycle)))
}

// Close takes everything down and removes the bench's folder.
func (b *Bench) Close() error {
	ctx := context.Background()
	var errs []error
	if b.hung.Load() {
		errs = append(errs, b.abandon())
	} else {
		errs = append(errs, b.tearDown(ctx))
	}
	if b.server != nil {
		errs = append(errs, b.server.Close())
		b.server = nil
	}
	if b.wire != nil {
		limited, cancel := context.WithTimeout(ctx, b.c.Limit)
		errs = append(errs, b.ns.Do(func() error { return b.wire.Close(limited) }))
		cancel()
		b.wire = nil
	}
	if b.ns != nil {
		errs = append(errs, b.ns.Close())
	}
	if b.kernel != nil {
		errs = append(errs, b.kernel.Close())
	}
	if b.base != nil {
		errs = append(errs, b.base.Close(), os.Remove(b.c.Image))
	}
	if b.own != nil {
		errs = append(errs, b.own.Close())
	}
	return errors.Join(append(errs, b.removeFolder())...)
}
