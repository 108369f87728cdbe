// Package witness is the witness stream: checksummed records in a file beside the
// database, each synced before it is acknowledged.
//
// It guarantees that a record which is there proves itself, byte by byte, and that
// a damaged one is told from one that was never written. It tells a loss of the
// drive or the filesystem from one of the database: it has no cache, no log and no
// format that could lose anything by itself. Where the file lies, and through what
// it is written, is the caller's choice.
package witness

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"sync"

	"plugpull/client"
	"plugpull/internal/clock"
	"plugpull/internal/ledger"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// RecordSize is the size of a record in bytes: a multiple of every sector size, so that
// the file can be written past the page cache.
//
//	  0  16  magic "plugpull witness"
//	 16  16  run id
//	 32   2  stream, little endian
//	 34   2  zero
//	 36   8  number
//	 44   4  CRC-32C of bytes 0–43 and the payload
//	 48  64  zero
//	112 …  payload
const RecordSize = 4096

const (
	magic     = "plugpull witness"
	payloadAt = RecordSize - workload.WitnessPayload
	// readSize is how much a cursor reads at once, in bytes.
	readSize = 64 * RecordSize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// File holds the records. Buffers that are handed to it start at a multiple of
// RecordSize in memory.
type File interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Size() (int64, error)
	Close() error
}

// Witness knows where in the file which record lies: number n of a stream at the place
// n − first, where first is the number that the stream began with on this device. Its methods may
// be called concurrently, the connections by one goroutine each.
type Witness struct {
	// Open opens the file; each connection and each cursor closes its own. Where it is gone,
	// fs.ErrNotExist: all its records are lost.
	Open func() (File, error)
	// Now is the clock of the streams.
	Now func() clock.Instant

	mu    sync.Mutex
	first map[workload.Stream]workload.Seq
}

// Forget is called when the device is made anew.
func (w *Witness) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first = nil
}

// place returns the first number of a stream, which is otherwise where none is known.
func (w *Witness) place(s workload.Stream, otherwise workload.Seq) workload.Seq {
	w.mu.Lock()
	defer w.mu.Unlock()
	if first, ok := w.first[s]; ok || otherwise == 0 {
		return first
	}
	if w.first == nil {
		w.first = map[workload.Stream]workload.Seq{}
	}
	w.first[s] = otherwise
	return otherwise
}

// Dial opens the connection of a stream.
func (w *Witness) Dial(p workload.Params) (client.Conn, error) {
	f, err := w.Open()
	if err != nil {
		return nil, fmt.Errorf("open the witness file: %w", err)
	}
	return &conn{w: w, f: f, p: p, buf: aligned(RecordSize)}, nil
}

// conn appends records.
type conn struct {
	w   *Witness
	f   File
	p   workload.Params
	buf []byte
}

// ID implements client.Conn: there is no server that counts connections.
func (c *conn) ID() uint64 { return 0 }

// Close implements client.Conn.
func (c *conn) Close() error { return c.f.Close() }

// Commit implements client.Conn: one record, written and synced.
func (c *conn) Commit(_ context.Context, op workload.Op) client.Reply {
	first := c.w.place(op.Stream, op.First)
	rec := appendRecord(c.buf[:0], c.p, op.Stream, op.Seq)
	sent := c.w.Now()
	_, err := c.f.WriteAt(rec, int64(op.Seq-first)*RecordSize)
	if err == nil {
		err = c.f.Sync()
	}
	r := client.Reply{Outcome: ledger.Acked, Sent: sent, Answered: c.w.Now(), Err: err}
	if err != nil {
		r.Outcome, r.Ended = ledger.Unknown, ledger.EndError
	}
	return r
}

func appendRecord(dst []byte, p workload.Params, s workload.Stream, n workload.Seq) []byte {
	dst = append(dst, magic...)
	dst = append(dst, p.Run[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(s))
	dst = append(dst, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(n))
	sum := len(dst)
	dst = append(dst, make([]byte, payloadAt-len(dst))...)
	dst = p.AppendPayload(dst, workload.TableWitness, s, n, 1)
	binary.LittleEndian.PutUint32(dst[sum:], checksum(dst[:sum], dst[payloadAt:]))
	return dst
}

func checksum(head, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, payload)
}

// Survivors returns the records that are left.
func (w *Witness) Survivors() verifier.Survivors { return survivors{w} }

type survivors struct{ w *Witness }

// Streams implements verifier.Survivors: the ledger names them all, and a file has no rows
// of others.
func (s survivors) Streams(context.Context, workload.Table) ([]workload.Stream, error) {
	return nil, nil
}

// Rows implements verifier.Survivors.
func (s survivors) Rows(_ context.Context, _ workload.Table, st workload.Stream, from workload.Seq) (verifier.Rows, error) {
	f, err := s.w.Open()
	if errors.Is(err, fs.ErrNotExist) {
		return none{}, nil // it went with all that was in it
	}
	if err != nil {
		return nil, fmt.Errorf("open the witness file: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the witness file's size: %w", err), f.Close())
	}
	r := &records{f: f, size: size, stream: st, first: s.w.place(st, 0), buf: aligned(readSize)}
	if from > r.first {
		r.at = int64(from-r.first) * RecordSize
	}
	return r, nil
}

// none is a cursor over a file that is gone.
type none struct{}

func (none) Next(*workload.Row) (bool, error) { return false, nil }
func (none) Close() error                     { return nil }

// records is a cursor over the file.
type records struct {
	f      File
	size   int64
	at     int64 // of the next record
	stream workload.Stream
	first  workload.Seq
	buf    []byte
	have   []byte // what of buf is not parsed yet
}

// Close implements verifier.Rows.
func (r *records) Close() error { return r.f.Close() }

// Next yields each record that was ever written. One whose bytes are damaged is yielded with the
// number of its place, so that it is known by what is wrong with it.
func (r *records) Next(row *workload.Row) (bool, error) {
	for r.at+RecordSize <= r.size {
		if len(r.have) == 0 {
			if err := r.fill(); err != nil {
				return false, err
			}
		}
		rec := (*[RecordSize]byte)(r.have)
		seq := r.first + workload.Seq(r.at/RecordSize)
		r.have, r.at = r.have[RecordSize:], r.at+RecordSize
		if *rec != [RecordSize]byte{} {
			r.parse(rec, row, seq)
			return true, nil
		}
	}
	return false, nil
}

func (r *records) fill() error {
	r.have = r.buf[:min(int64(len(r.buf)), (r.size-r.at)/RecordSize*RecordSize)]
	n, err := r.f.ReadAt(r.have, r.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the witness file at %d: %w", r.at, err)
	}
	clear(r.have[n:])
	return nil
}

func (r *records) parse(rec *[RecordSize]byte, row *workload.Row, seq workload.Seq) {
	head, payload := rec[:44], rec[payloadAt:]
	*row = workload.Row{Table: workload.TableWitness, Stream: r.stream, Seq: seq, Version: 1, Payload: payload}
	copy(row.Run[:], head[16:32])
	if !bytes.HasPrefix(head, []byte(magic)) || binary.LittleEndian.Uint32(rec[44:]) != checksum(head, payload) ||
		binary.LittleEndian.Uint64(head[36:]) != uint64(seq) || binary.LittleEndian.Uint16(head[32:]) != uint16(r.stream) {
		row.Payload = nil // no record has an empty payload: the bytes differ
	}
}

// aligned returns n bytes that start at a multiple of RecordSize in memory.
func aligned(n int) []byte {
	b := make([]byte, n+RecordSize)
	skip := offset(b)
	return b[skip : skip+n : skip+n]
}
