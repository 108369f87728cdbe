package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"plugpull/client"
	"plugpull/internal/ledger"
	"plugpull/internal/simdrive/sqlitevfs"
	"plugpull/internal/workload"
	"plugpull/verifier"
)

// A witness record fills a block of 4 KiB:
//
//	  0  16  magic "plugpull witness"
//	 16  16  run id
//	 32   2  stream, little endian
//	 34   2  zero
//	 36   8  number
//	 44   4  CRC-32C of bytes 0–43 and the payload
//	 48  64  zero
//	112 …  payload
const (
	recordSize  = 4096
	witnessFile = "witness"
	witnessName = "plugpull witness"
	payloadAt   = recordSize - workload.WitnessPayload
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// witnessFirst holds the first number of each witness stream of the cycle: record n lies at n−first.
type witnessFirst map[workload.Stream]workload.Seq

// witnessConn appends records to the witness file, each synced before it is acknowledged.
type witnessConn struct {
	b *Bench
	f *sqlitevfs.File
	p workload.Params
}

func (b *Bench) dialWitness(p workload.Params) (client.Conn, error) {
	f, err := b.mount.fs.File(witnessFile)
	if err != nil {
		return nil, fmt.Errorf("open the witness file: %w", err)
	}
	return &witnessConn{b, f, p}, nil
}

func (w *witnessConn) ID() uint64 { return 0 }

func (w *witnessConn) Close() error { return w.f.Close() }

// Commit implements client.Conn: one record, written and synced.
func (w *witnessConn) Commit(_ context.Context, op workload.Op) client.Reply {
	w.b.first[op.Stream] = op.First
	rec := appendRecord(make([]byte, 0, recordSize), w.p, op.Stream, op.Seq)
	sent := w.b.Now()
	_, err := w.f.WriteAt(rec, int64(op.Seq-op.First)*recordSize)
	if err == nil {
		err = w.f.Sync()
	}
	r := client.Reply{Outcome: ledger.Acked, Sent: sent, Answered: w.b.Now(), Err: err}
	if err != nil {
		r.Outcome, r.Ended = ledger.Unknown, ledger.EndError
	}
	return r
}

func appendRecord(dst []byte, p workload.Params, s workload.Stream, n workload.Seq) []byte {
	dst = append(dst, witnessName...)
	dst = append(dst, p.Run[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(s))
	dst = append(dst, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(n))
	payload := p.AppendPayload(nil, workload.TableWitness, s, n, 1)
	dst = binary.LittleEndian.AppendUint32(dst, checksum(dst[:44], payload))
	dst = append(dst, make([]byte, payloadAt-len(dst))...)
	return append(dst, payload...)
}

func checksum(head, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, payload)
}

// witnessSurvivors reads the records that are left.
type witnessSurvivors struct{ b *Bench }

func (w witnessSurvivors) Streams(context.Context, workload.Table) ([]workload.Stream, error) {
	return nil, nil // the ledger names them all; a file has no rows of others
}

func (w witnessSurvivors) Rows(_ context.Context, _ workload.Table, s workload.Stream, from workload.Seq) (verifier.Rows, error) {
	f, err := w.b.mount.fs.File(witnessFile)
	if err != nil {
		return nil, fmt.Errorf("open the witness file: %w", err)
	}
	return &records{f: f, size: f.Size(), stream: s, first: w.b.first[s], from: from}, nil
}

// records is a cursor over the witness file.
type records struct {
	f      *sqlitevfs.File
	size   int64
	at     int64
	stream workload.Stream
	first  workload.Seq
	from   workload.Seq
	buf    [recordSize]byte
}

func (r *records) Close() error { return r.f.Close() }

// Next yields each record that was ever written. One whose bytes are damaged is yielded with the
// number of its place, so that it is known by what is wrong with it.
func (r *records) Next(row *workload.Row) (bool, error) {
	for ; r.at+recordSize <= r.size; r.at += recordSize {
		n, err := r.f.ReadAt(r.buf[:], r.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("read the witness file: %w", err)
		}
		clear(r.buf[n:])
		seq := r.first + workload.Seq(r.at/recordSize)
		if r.buf == [recordSize]byte{} || seq < r.from {
			continue
		}
		r.at += recordSize
		r.parse(row, seq)
		return true, nil
	}
	return false, nil
}

func (r *records) parse(row *workload.Row, seq workload.Seq) {
	head, payload := r.buf[:44], r.buf[payloadAt:]
	*row = workload.Row{Table: workload.TableWitness, Stream: r.stream, Seq: seq, Version: 1, Payload: payload}
	copy(row.Run[:], head[16:32])
	if !bytes.HasPrefix(head, []byte(witnessName)) || binary.LittleEndian.Uint32(r.buf[44:]) != checksum(head, payload) ||
		binary.LittleEndian.Uint64(head[36:]) != uint64(seq) || binary.LittleEndian.Uint16(head[32:]) != uint16(r.stream) {
		row.Payload = nil // no record has an empty payload: the bytes differ
	}
}
