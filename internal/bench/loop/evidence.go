package loop

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"plugpull/internal/simdrive"
)

// logSize bounds each start's part of database.log, in bytes.
const logSize = 1 << 20

// hear reads what the kernel has said of the bench's device since the last time.
func (b *Bench) hear() {
	if b.kernel == nil || b.stack == nil {
		return
	}
	said, lost, err := b.kernel.Read(b.stack.loop.Name())
	if err != nil || lost {
		b.said = append(b.said, said...)
		return // it is evidence for people; a gap in it changes no verdict
	}
	b.said = append(b.said, said...)
	const most = 1000
	if n := len(b.said); n > most {
		b.said = b.said[n-most:]
	}
}

// Keep implements campaign.Keeping.
func (b *Bench) Keep(_ context.Context, dir string, image bool) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	b.hear()
	files := map[string]func(io.Writer) error{"database.log": b.databaseLog, "kernel.log": b.kernelLog, "drive.log": b.driveLog}
	if _, err := b.drive.CutImage(); err != nil {
		image = false // there is none, or the drive is another one by now
	}
	if image {
		files["image.gz"] = b.image
	}
	for name, write := range files {
		if err := writeFile(filepath.Join(dir, name), write); err != nil {
			return "", err
		}
	}
	b.said = nil
	text := b.howToLook(dir, image)
	return text, writeFile(filepath.Join(dir, "LOOK.txt"), func(w io.Writer) error {
		_, err := io.WriteString(w, text+"\n")
		return err
	})
}

func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return w.Flush()
}

// databaseLog writes the server's log of the load that was cut, and of what followed.
func (b *Bench) databaseLog(w io.Writer) error {
	if b.before != nil {
		fmt.Fprintf(w, "== before the cut\n%s\n", b.before.Log(logSize))
	}
	if b.proc != nil {
		fmt.Fprintf(w, "== after the cut\n%s\n", b.proc.Log(logSize))
	}
	return nil
}

func (b *Bench) kernelLog(w io.Writer) error {
	for _, m := range b.said {
		fmt.Fprintf(w, "[%12.6f] %s\n", m.Time.Seconds(), m.Text)
	}
	if b.kernel == nil {
		_, err := fmt.Fprintln(w, "the kernel's log could not be opened")
		return err
	}
	return nil
}

// driveLog writes what was done to the drive in the power-on that the last cut ended.
func (b *Bench) driveLog(w io.Writer) error {
	report, cut := b.drive.Report()
	if !cut {
		return nil
	}
	fmt.Fprintf(w, "# seconds since the drive was made, request, offset and length in bytes, CRC-32C of what was written\n")
	for _, e := range b.drive.Entries() {
		if e.Generation != report.Generation {
			continue
		}
		fmt.Fprintf(w, "%.6f %s", e.At.Seconds(), e.Kind)
		switch e.Kind {
		case simdrive.EntryWrite, simdrive.EntryFUA:
			fmt.Fprintf(w, " %d %d %08x", e.Off, e.Len, e.Sum)
		case simdrive.EntryDiscard, simdrive.EntryInFlight:
			fmt.Fprintf(w, " %d %d", e.Off, e.Len)
		case simdrive.EntryMark:
			fmt.Fprintf(w, " %s", e.Text)
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintf(w, "# the cut at %.6f dropped %d bytes and kept %d of what was volatile\n",
		report.At.Seconds(), report.DroppedBytes, report.KeptBytes)
	return err
}

// image writes the drive as the cut left it, before anything was recovered.
func (b *Bench) image(w io.Writer) error {
	r, err := b.drive.CutImage()
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, io.NewSectionReader(r, 0, b.c.Drive.Size)); err != nil {
		return err
	}
	return z.Close()
}

// readOnly are the mount options under which a filesystem changes nothing, not even its journal.
var readOnly = map[string]string{"ext4": "ro,noload", "xfs": "ro,norecovery,nouuid", "btrfs": "ro,rescue=nologreplay"}

func (b *Bench) howToLook(dir string, image bool) string {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s: database.log, kernel.log, drive.log (every request of the power-on that was cut)", dir)
	if !image {
		return text.String()
	}
	options := strings.Join(append([]string{"rw"}, b.c.Mount...), ",")
	var settings strings.Builder
	for _, name := range slices.Sorted(maps.Keys(b.c.Settings)) {
		fmt.Fprintf(&settings, " --%s=%s", name, b.c.Settings[name])
	}
	fmt.Fprintf(&text, `
image.gz is the drive as the cut left it. Without any recovery, so that what is only in the journal is not to be seen:
  gunzip -k image.gz && mount -o loop,%s image /mnt && ls -lR /mnt; umount /mnt
With the filesystem's recovery, on a copy, and then the server's own (%s %s):
  cp image copy && mount -o loop,%s copy /mnt
  %s --no-defaults --user=root --datadir=/mnt/data --socket=/tmp/s --skip-networking%s
  umount /mnt
kept at %s, seed %d`, readOnly[b.c.Filesystem], b.install.Flavour, b.install.Version, options, b.install.Binary, &settings,
		time.Now().Format(time.RFC3339), b.c.Seed)
	return text.String()
}
